//! The recorded files that come with the project.

use std::path::PathBuf;

use crate::{DataError, History};

/// Names of the recorded histories; each has expectations too.
pub const RECORDINGS: [&str; 9] =
    ["demo", "types", "ddl", "partition", "bank", "bank-live", "random-11", "random-12", "random-13"];

/// The demo's history as it lies on disk: part of the program, so that the demo needs no files.
const DEMO: &[u8] = include_bytes!("../data/demo.history.jsonl.zst");

/// Where a recorded file lies in a checkout; for tests and benches.
pub fn path(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "data", file].iter().collect()
}

/// Reads the recorded history `name` (one of [`RECORDINGS`]) from the checkout.
///
/// # Errors
/// [`DataError`] if there is none of that name.
pub fn history(name: &str) -> Result<History, DataError> {
    History::open(path(&format!("{name}.history.jsonl.zst")))
}

/// The demo's history, from the program itself.
///
/// # Errors
/// [`DataError`] if the program was built from a damaged checkout.
pub fn demo_history() -> Result<History, DataError> {
    History::from_zstd("demo.history.jsonl.zst", DEMO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Expected;

    #[test]
    fn every_recording_loads_and_covers_its_expectations() {
        for name in RECORDINGS {
            let history = history(name).expect(name);
            let expected = Expected::open(path(&format!("{name}.expected.json.zst"))).expect(name);
            assert_eq!(history.header.name, name);
            let covered = history.header.base_ts..=history.header.end_ts;
            assert!(expected.snapshots.iter().all(|snapshot| covered.contains(&snapshot.ts)), "{name}");
        }
    }

    #[test]
    fn the_demo_inside_the_program_is_the_demo_on_disk() {
        assert_eq!(demo_history().expect("embedded"), history("demo").expect("on disk"));
    }
}
