//! Every error code has a page that says what to do, and every page belongs to a code.

use std::collections::BTreeMap;

use super::{File, Finding};

const PAGES: &str = "docs/errors/";
const INDEX: &str = "docs/errors/README.md";

/// Codes in the crates' sources, pages in `docs/errors/` and lines of its index are the same set.
pub(super) fn codes_and_pages_match(files: &[File]) -> Vec<Finding> {
    let used = used_codes(files);
    let pages: BTreeMap<&str, &File> = files.iter().filter_map(page).collect();
    let index = files.iter().find(|file| file.path == INDEX).map_or("", File::text);
    let missing = used.iter().filter(|(code, _)| !pages.contains_key(code.as_str()));
    let unused = pages.iter().filter(|(code, _)| !used.contains_key(**code));
    let unlisted = pages.iter().filter(|(code, _)| !index.contains(&format!("({code}.md)")));
    missing
        .map(|(code, (file, line))| file.finding(*line, format!("{code} has no page in {PAGES}")))
        .chain(unused.map(|(_, file)| file.finding(0, "no source uses this code")))
        .chain(unlisted.map(|(_, file)| file.finding(0, format!("not listed in {INDEX}"))))
        .collect()
}

fn page(file: &File) -> Option<(&str, &File)> {
    let code = file.path.strip_prefix(PAGES)?.strip_suffix(".md")?;
    (code != "README").then_some((code, file))
}

/// Each code with the first place that names it: our own in the crates, the contract's in its enum.
fn used_codes(files: &[File]) -> BTreeMap<String, (&File, usize)> {
    let mut used = BTreeMap::new();
    for file in files {
        let in_crate = file.path.starts_with("crates/") && file.has_extension(&["rs"]);
        for (line, text) in file.lines() {
            let literals = codes(text).filter(|_| in_crate);
            let value = enum_value(text).filter(|_| file.has_extension(&["proto"]));
            for code in literals.chain(value) {
                used.entry(code.to_owned()).or_insert((file, line));
            }
        }
    }
    used
}

/// The name in a line such as `SF_RATE_LIMITED = 28;`. The value 0 stands for none.
fn enum_value(text: &str) -> Option<&str> {
    let (name, number) = text.trim().strip_suffix(';')?.split_once(" = ")?;
    (is_search_fabric(name) && number != "0").then_some(name)
}

/// String literals of the forms `TG-AREA-NNN` and `SF_NAME`.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2).filter(|literal| is_ours(literal) || is_search_fabric(literal))
}

fn is_ours(literal: &str) -> bool {
    let Some((area, number)) = literal.strip_prefix("TG-").and_then(|rest| rest.split_once('-')) else {
        return false;
    };
    let area_ok = !area.is_empty() && area.chars().all(|c| c.is_ascii_uppercase());
    area_ok && number.len() == 3 && number.chars().all(|c| c.is_ascii_digit())
}

fn is_search_fabric(literal: &str) -> bool {
    let name = literal.strip_prefix("SF_").unwrap_or_default();
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::super::{file, found};
    use super::*;

    #[test]
    fn a_code_without_a_page_and_a_page_without_a_code_are_found() {
        let files = [
            file("crates/source/pd/src/error.rs", "\n\"TG-PD-001\" => \"SF_STALE_EPOCH\""),
            file("docs/errors/SF_STALE_EPOCH.md", ""),
            file("docs/errors/TG-PD-002.md", ""),
            file(INDEX, "[x](SF_STALE_EPOCH.md) [y](TG-PD-002.md)"),
        ];
        let expected = [
            "crates/source/pd/src/error.rs:2: TG-PD-001 has no page in docs/errors/",
            "docs/errors/TG-PD-002.md: no source uses this code",
        ];
        assert_eq!(found(codes_and_pages_match, &files), expected);
    }

    #[test]
    fn a_page_that_the_index_does_not_list_is_found() {
        let files = [
            file("crates/a/b/src/lib.rs", "\"TG-PD-001\""),
            file("docs/errors/TG-PD-001.md", ""),
            file(INDEX, ""),
        ];
        let expected = ["docs/errors/TG-PD-001.md: not listed in docs/errors/README.md"];
        assert_eq!(found(codes_and_pages_match, &files), expected);
    }

    #[test]
    fn the_values_of_the_contract_s_error_enum_need_pages_too() {
        let files = [file("proto/a.proto", "enum E {\n  SF_UNSPECIFIED = 0;\n  SF_RATE_LIMITED = 28;\n}")];
        assert_eq!(
            found(codes_and_pages_match, &files),
            ["proto/a.proto:3: SF_RATE_LIMITED has no page in docs/errors/"]
        );
    }

    #[test]
    fn only_whole_literals_of_the_two_forms_are_codes() {
        let check =
            |text: &str, expect: &[&str]| assert_eq!(codes(text).collect::<Vec<_>>(), expect, "{text}");
        check("x(\"TG-PD-001\", \"TG-PD-1\", \"TG--001\")", &["TG-PD-001"]);
        check("y(\"SF_RATE_LIMITED\", \"SF_\", \"SF_x\")", &["SF_RATE_LIMITED"]);
        check("TG-PD-001", &[]);
    }
}
