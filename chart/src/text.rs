//! Widths, wrapping and cleaning of text.

/// Width of `text` in a proportional sans-serif face, in ems. An upper estimate over the common system faces: it is
/// used to keep labels apart, so too wide is harmless.
pub(crate) fn ems(text: &str) -> f64 {
    text.chars().map(char_ems).sum()
}

fn char_ems(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '\'' | '|' | 'I' => 0.32,
        ' ' | '.' | ',' | ':' | ';' | '!' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' | '"' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '…' | '→' => 1.0,
        'A'..='Z' | '&' | '+' | '<' | '>' | '=' | '~' | '#' | '×' | '±' | '−' => 0.78,
        c if (c as u32) < 0x2e80 => 0.64,
        _ => 1.1,
    }
}

/// Splits `text` at spaces into at most `most` lines that `fits` accepts; what does not fit any more ends in `dots`.
pub(crate) fn wrap(text: &str, most: usize, dots: &str, fits: impl Fn(&str) -> bool) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.peek() {
        if lines.len() == most {
            // Give the rest to the last line, which is then cut.
            if let Some(last) = lines.last_mut() {
                for word in words {
                    last.push(' ');
                    last.push_str(word);
                }
                *last = cut(last, dots, &fits);
            }
            return lines;
        }
        let mut line = word.to_string();
        words.next();
        while let Some(word) = words.peek() {
            let longer = format!("{line} {word}");
            if !fits(&longer) {
                break;
            }
            line = longer;
            words.next();
        }
        lines.push(cut(&line, dots, &fits));
    }
    lines
}

/// `text`, or its longest beginning that fits with `dots` after it.
pub(crate) fn cut(text: &str, dots: &str, fits: impl Fn(&str) -> bool) -> String {
    if fits(text) {
        return text.to_string();
    }
    let mut kept: Vec<char> = text.chars().collect();
    while kept.pop().is_some() {
        let shorter = kept.iter().collect::<String>();
        let shorter = format!("{}{dots}", shorter.trim_end());
        if fits(&shorter) {
            return shorter;
        }
    }
    String::new()
}

/// Text for XML, in element content or a quoted attribute. Characters that XML forbids become U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' | '\r' => out.push(' '),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}');
            }
            _ => out.push(c),
        }
    }
    out
}

/// Text for a terminal: no control characters (they could move the cursor or change colours), and with `ascii` nothing
/// beyond ASCII.
pub(crate) fn printable(text: &str, ascii: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => out.push(' '),
            // Marks that reorder what follows would break the columns.
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => {}
            c if !ascii || c.is_ascii() => out.push(c),
            'µ' | 'μ' => out.push('u'),
            '–' | '—' | '−' | '‐' | '‑' => out.push('-'),
            '×' => out.push('x'),
            '±' => out.push_str("+-"),
            '…' => out.push_str("..."),
            '·' | '•' => out.push('-'),
            '→' => out.push_str("->"),
            '≤' => out.push_str("<="),
            '≥' => out.push_str(">="),
            '“' | '”' => out.push('"'),
            '‘' | '’' => out.push('\''),
            '\u{a0}' | '\u{2009}' | '\u{202f}' => out.push(' '),
            _ => out.push('?'),
        }
    }
    out
}

/// Columns that `text` takes in a terminal, one for each character.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrap_keeps_every_word_until_the_last_line_is_cut() {
        let fits = |s: &str| columns(s) <= 10;
        assert_eq!(wrap("one two three four", 3, "…", fits), ["one two", "three four"]);
        assert_eq!(wrap("one two three four", 1, "…", fits), ["one two t…"]);
        assert_eq!(wrap("abcdefghijklmnop", 2, "…", fits), ["abcdefghi…"]);
        assert!(wrap("  ", 2, "…", fits).is_empty());
        assert!(wrap("word", 2, "…", |_| false)[0].is_empty());
    }

    #[test]
    fn escape_leaves_no_markup_and_no_forbidden_character() {
        assert_eq!(escape("a<b>&\"'\u{1b}\u{0}\n"), "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}\u{fffd} ");
    }

    #[test]
    fn printable_text_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\n\u{202e}c", false), "a [31mb c");
        assert_eq!(printable("5 µs ± 1, 2 × 3 → 漢", true), "5 us +- 1, 2 x 3 -> ?");
    }
}
