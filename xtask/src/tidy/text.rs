//! Rules about text of any kind: lengths, sizes and words that must not be there.

use super::{File, Finding};

/// Wider lines do not fit beside a second window.
const LINE_COLUMNS_MAX: usize = 110;
/// A longer file has a seam along which it can be split.
const FILE_LINES_MAX: usize = 800;
/// Keeps a clone quick; the largest recorded history is about 840 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

const WRITTEN: &[&str] = &["rs", "toml", "proto", "md", "html", "css", "js", "yml"];
/// Not `.proto`: a contract is one file, however much it holds.
const CODE: &[&str] = &["rs", "html", "css", "js"];

/// No line of written text is wider than [`LINE_COLUMNS_MAX`]. Tables of Markdown cannot be broken.
pub(super) fn line_lengths(files: &[File]) -> Vec<Finding> {
    let written = files.iter().filter(|file| file.has_extension(WRITTEN));
    written.flat_map(|file| file.lines().filter_map(|(line, text)| wide(file, line, text))).collect()
}

fn wide(file: &File, line: usize, text: &str) -> Option<Finding> {
    let columns = text.chars().count();
    let table = file.has_extension(&["md"]) && text.starts_with('|');
    (columns > LINE_COLUMNS_MAX && !table)
        .then(|| file.finding(line, format!("{columns} columns, {LINE_COLUMNS_MAX} allowed")))
}

/// No file of code has [`FILE_LINES_MAX`] lines or more.
pub(super) fn file_lengths(files: &[File]) -> Vec<Finding> {
    let long = |file: &&File| file.text().lines().count() >= FILE_LINES_MAX;
    let code = files.iter().filter(|file| file.has_extension(CODE));
    code.filter(long).map(|file| file.finding(0, format!("{FILE_LINES_MAX} lines or more"))).collect()
}

/// No tracked file is larger than [`FILE_BYTES_MAX`].
pub(super) fn file_sizes(files: &[File]) -> Vec<Finding> {
    let large = files.iter().filter(|file| file.size_bytes > FILE_BYTES_MAX);
    large
        .map(|file| file.finding(0, format!("{} bytes, {FILE_BYTES_MAX} allowed", file.size_bytes)))
        .collect()
}

/// First folders of absolute paths that exist on somebody's machine only.
const MACHINE_ROOTS: &[&str] = &["work", "farm", "root", "home", "tmp"];

/// No file names a path of the machine it was written on.
pub(super) fn machine_paths(files: &[File]) -> Vec<Finding> {
    let per_line = |file: &File| -> Vec<Finding> {
        let hit = |(line, text): (usize, &str)| {
            machine_path(text).map(|root| file.finding(line, format!("a machine's path: /{root}/…")))
        };
        file.lines().filter_map(hit).collect()
    };
    files.iter().flat_map(per_line).collect()
}

fn machine_path(text: &str) -> Option<&'static str> {
    MACHINE_ROOTS.iter().copied().find(|root| {
        let needle = format!("/{root}/");
        text.match_indices(&needle).any(|(at, _)| starts_a_path(text, at) && goes_on(text, at + needle.len()))
    })
}

fn starts_a_path(text: &str, at: usize) -> bool {
    let before = text.get(..at).and_then(|head| head.chars().next_back());
    before.is_none_or(|c| !c.is_alphanumeric() && !"_.-/}".contains(c))
}

fn goes_on(text: &str, at: usize) -> bool {
    let after = text.get(at..).and_then(|tail| tail.chars().next());
    after.is_some_and(|c| c.is_alphanumeric() || "_.-".contains(c))
}

/// Hosts of package registries, written in two halves so that this file passes its own rule.
const REGISTRY_HOSTS: &[[&str; 2]] = &[
    ["crates", ".io"],
    ["npmjs", ".org"],
    ["pypi", ".org"],
    ["proxy.golang", ".org"],
    ["maven", ".org"],
    ["maven.apache", ".org"],
];

/// No file but the lock file names a package registry's host: builders have their own mirrors.
pub(super) fn registry_hosts(files: &[File]) -> Vec<Finding> {
    let hosts: Vec<String> = REGISTRY_HOSTS.iter().map(|halves| halves.concat()).collect();
    let named = |text: &str| hosts.iter().find(|host| text.contains(host.as_str())).cloned();
    let per_line = |file: &File| -> Vec<Finding> {
        let hit = |(line, text): (usize, &str)| {
            named(text).map(|host| file.finding(line, format!("a registry's host: {host}")))
        };
        file.lines().filter_map(hit).collect()
    };
    files.iter().filter(|file| file.path != "Cargo.lock").flat_map(per_line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{file, found};
    use super::*;

    #[test]
    fn a_line_of_111_columns_is_too_wide_and_a_table_row_is_not() {
        let wide = "ü".repeat(111);
        let files = [
            file("a.rs", &format!("short\n{wide}")),
            file("b.rs", &"ü".repeat(110)),
            file("c.md", &format!("| {wide} |")),
            file("d.zst", &wide),
        ];
        assert_eq!(found(line_lengths, &files), ["a.rs:2: 111 columns, 110 allowed"]);
    }

    #[test]
    fn a_file_of_800_lines_is_too_long() {
        let files = [file("a.rs", &"x\n".repeat(800)), file("b.rs", &"x\n".repeat(799))];
        assert_eq!(found(file_lengths, &files), ["a.rs: 800 lines or more"]);
    }

    #[test]
    fn a_file_above_one_mebibyte_is_too_large() {
        let large = File { path: "a.zst".to_owned(), size_bytes: 1_048_577, text: None };
        assert_eq!(found(file_sizes, &[large]), ["a.zst: 1048577 bytes, 1048576 allowed"]);
    }

    #[test]
    fn absolute_paths_of_a_machine_are_found_and_relative_ones_are_not() {
        let check = |text: &str, expect: Option<&str>| assert_eq!(machine_path(text), expect, "{text}");
        check(&["see /", "home/ann/x"].concat(), Some("home"));
        check(&["\"/", "tmp/x\""].concat(), Some("tmp"));
        check("crates/work/x and ./tmp/x", None);
        check("the /root/ of all", None);
    }

    #[test]
    fn a_registry_host_is_found_everywhere_but_in_the_lock_file() {
        let text = ["https://index.", "crates", ".io/"].concat();
        let files = [file("a.md", &text), file("Cargo.lock", &text)];
        assert_eq!(found(registry_hosts, &files), [["a.md:1: a registry's host: crates", ".io"].concat()]);
    }
}
