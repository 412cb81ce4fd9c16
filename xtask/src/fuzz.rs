//! Long fuzzing runs: the tests' own targets, in release and for a chosen time.

use std::path::Path;
use std::process::Command;

/// Runs each fuzz target of the codec for `seconds`, from `seed` or the committed one.
pub(crate) fn run(root: &Path, seconds: &str, seed: Option<&str>) -> Result<(), String> {
    let args = ["test", "--release", "-p", "tidegate-codec", "--test", "it", "fuzz", "--", "--nocapture"];
    let mut cargo = Command::new("cargo");
    cargo.args(args).env("TIDEGATE_FUZZ_SECONDS", number(seconds)?).current_dir(root);
    if let Some(seed) = seed {
        cargo.env("TIDEGATE_FUZZ_SEED", number(seed)?);
    }
    match cargo.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("error: a fuzz target failed\n  hint: the seed above repeats it".to_owned()),
        Err(error) => Err(format!("error: cannot run cargo\n  detail: {error}")),
    }
}

/// `text`, if it is a whole number; the tests would silently fall back to their defaults otherwise.
fn number(text: &str) -> Result<&str, String> {
    let parsed: Result<u64, _> = text.parse();
    parsed.map(|_| text).map_err(|_| format!("error: '{text}' is not a whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_seeds_are_whole_numbers() {
        assert_eq!(number("60"), Ok("60"));
        assert!(number("1m").is_err() && number("-1").is_err() && number("").is_err());
    }
}
