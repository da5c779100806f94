//! What is wrong with the text of a configuration, in words that ask for no Rust.

/// What a reader of Rust's types says that it expected, and what is to stand there.
const WORDS: [(&str, &str); 12] = [
    ("expected u16", "a whole number from 0 to 65535 is wanted"),
    ("expected u32", "a whole number from 0 to 4294967295 is wanted"),
    ("expected u64", "a whole number from 0 is wanted"),
    ("expected usize", "a whole number from 0 is wanted"),
    ("expected a boolean", "true or false is wanted"),
    ("expected a string", "a text in quotes is wanted"),
    ("expected path string", "a path in quotes is wanted"),
    ("expected an array of length 2", "a list of 2 is wanted"),
    ("expected a sequence", "a list, or a table in double brackets is wanted"),
    ("expected socket address", "an address with a port, such as \"127.0.0.1:9464\", is wanted"),
    ("invalid socket address syntax", "an address with a port, such as \"127.0.0.1:9464\", is wanted"),
    ("wanted string or table", "a text in quotes is wanted"),
];

/// The same as the reader says, with the line and what is under the mark there.
pub(super) fn in_words(error: &toml::de::Error) -> String {
    let whole = error.to_string();
    let message = error.message();
    let place = whole.trim_end().strip_suffix(message.trim_end()).unwrap_or_default();
    let mut plain = message.to_owned();
    for (rust, words) in WORDS {
        plain = plain.replace(rust, words);
    }
    if let Some((before, _)) = plain.split_once("expected struct ") {
        plain = format!("{before}a table is wanted");
    }
    format!("{place}{}", plain.trim_end())
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_value_of_the_wrong_kind_is_told_what_is_accepted_and_where() {
        for (text, line, wanted) in [
            ("allow_users = 3", 1, "a list of user numbers is wanted, or \"any\""),
            ("allow_users = [\"x\"]", 1, "a list of user numbers is wanted, or \"any\""),
            ("step_timeout_ms = -1", 1, "integer `-1`, a whole number from 0 is wanted"),
            ("\nwakeup_latency_us = 1.5", 2, "floating point `1.5`, a whole number from 0 to 4294967295 is wanted"),
            ("metrics = \"x\"", 1, "such as \"127.0.0.1:9464\", is wanted"),
            ("metrics = 5", 1, "such as \"127.0.0.1:9464\", is wanted"),
            ("network = 3", 1, "a list, or a table in double brackets is wanted"),
            ("limits = 3", 1, "a table is wanted"),
            ("socket = 3", 1, "a path in quotes is wanted"),
            ("socket_mode = 3", 1, "a text in quotes is wanted"),
            ("[[network]]\nmode = 3", 2, "a text in quotes is wanted"),
            ("[[network]]\nmode = \"x\"", 2, "expected `bridge` or `loopback`"),
            ("[[network]]\nthreads = -1", 2, "a whole number from 0 is wanted"),
            ("[[network]]\nown_address_only = 1", 2, "true or false is wanted"),
            ("[[network]]\nport = [\"tap:a\"]", 2, "a table is wanted"),
            ("[[network]]\n[[network.client]]\nvlan = 70000", 3, "a whole number from 0 to 65535 is wanted"),
            ("[[network]]\n[[network.connect]]\nbetween = [\"port:0\"]", 3, "a list of 2 is wanted"),
        ] {
            let said = Config::read(text).expect_err(text).to_string();
            assert!(said.contains(&format!("at line {line},")) && said.ends_with(wanted), "{text}: {said}");
            for rust in ["u16", "u32", "u64", "usize", "struct", "enum", "variant of", "syntax"] {
                assert!(!said.contains(rust), "{text}: {said}");
            }
        }
    }
}
