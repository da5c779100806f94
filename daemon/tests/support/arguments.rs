//! The command line of a test program that plays its own harness.

/// The numbers behind these options, none for an option that is not given; none at all where the harness's words ask for tests of
/// another name.
pub fn numbers<const COUNT: usize>(test: &str, options: [&str; COUNT]) -> Option<[Option<u64>; COUNT]> {
    let mut numbers = [None; COUNT];
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if let Some(which) = options.iter().position(|option| *option == word) {
            let number = words.next().and_then(|word| word.parse().ok());
            numbers[which] = Some(number.unwrap_or_else(|| panic!("{word} NUMBER")));
            continue;
        }
        match word.as_str() {
            // Names of other tests.
            "--skip" => _ = words.next(),
            "--list" => return None,
            other if other.starts_with('-') => {}
            filter if !test.contains(filter) => return None,
            _ => {}
        }
    }
    Some(numbers)
}
