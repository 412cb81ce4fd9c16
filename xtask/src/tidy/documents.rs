//! Rules about the documents that a newcomer reads first.

use super::{File, Finding};

/// A map that is longer is not a map.
const ARCHITECTURE_LINES_MAX: usize = 300;
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// `ARCHITECTURE.md` is short and names every crate.
pub(super) fn architecture(files: &[File]) -> Vec<Finding> {
    let Some(map) = files.iter().find(|file| file.path == ARCHITECTURE) else {
        return vec![Finding { path: ARCHITECTURE.to_owned(), line: 0, message: "missing".to_owned() }];
    };
    let lines = map.text().lines().count();
    let long = (lines > ARCHITECTURE_LINES_MAX)
        .then(|| map.finding(0, format!("{lines} lines, {ARCHITECTURE_LINES_MAX} allowed")));
    let unnamed = files.iter().filter_map(crate_folder).filter(|folder| !map.text().contains(*folder));
    long.into_iter().chain(unnamed.map(|folder| map.finding(0, format!("does not name {folder}")))).collect()
}

fn crate_folder(file: &File) -> Option<&str> {
    file.path.strip_suffix("/Cargo.toml").filter(|folder| folder.starts_with("crates/"))
}

#[cfg(test)]
mod tests {
    use super::super::{file, found};
    use super::*;

    #[test]
    fn a_crate_that_the_map_does_not_name_is_found() {
        let files = [
            file(ARCHITECTURE, "crates/base/core"),
            file("crates/base/core/Cargo.toml", ""),
            file("crates/source/pd/Cargo.toml", ""),
        ];
        assert_eq!(found(architecture, &files), ["ARCHITECTURE.md: does not name crates/source/pd"]);
    }

    #[test]
    fn a_map_of_more_than_300_lines_is_too_long_and_none_is_missing() {
        let long = [file(ARCHITECTURE, &"x\n".repeat(301))];
        assert_eq!(found(architecture, &long), ["ARCHITECTURE.md: 301 lines, 300 allowed"]);
        assert_eq!(found(architecture, &[]), ["ARCHITECTURE.md: missing"]);
    }
}
