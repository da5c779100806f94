//! Tests of the platform files that come with the program.

use super::*;

#[test]
fn every_shipped_platform_loads() {
    for name in Platform::names() {
        let platform = Platform::load(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(platform.parameters().name, name);
    }
}
