//! Rules of this project that no compiler checks. Each rule is a function from the tracked files to findings,
//! so that a test can feed it a file that breaks it.

mod code;
mod documents;
mod error_pages;
mod layers;
mod text;

use std::fmt;
use std::path::Path;
use std::process::Command;

/// A tracked file. Binary files have no text.
pub(crate) struct File {
    /// Path from the workspace root, with forward slashes.
    pub(crate) path: String,
    /// Size in bytes.
    pub(crate) size_bytes: u64,
    /// Contents, if they are UTF-8.
    pub(crate) text: Option<String>,
}

impl File {
    fn has_extension(&self, extensions: &[&str]) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
    }

    fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text().lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, message: message.into() }
    }
}

/// A broken rule, at a line of a file (0: the file as a whole).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

type Rule = fn(&[File]) -> Vec<Finding>;

const RULES: &[Rule] = &[
    text::line_lengths,
    text::file_lengths,
    text::file_sizes,
    text::machine_paths,
    text::registry_hosts,
    code::function_lengths,
    code::module_names,
    code::unbounded_queues,
    layers::dependency_direction,
    error_pages::codes_and_pages_match,
    documents::architecture,
];

/// Checks every rule over the tracked and not-yet-added files under `root`.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let files = tracked_files(root)?;
    let findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&files)).collect();
    if findings.is_empty() {
        println!("tidy: {} files, {} rules, nothing to do", files.len(), RULES.len());
        return Ok(());
    }
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    Err(format!("{}\ntidy: {} findings", lines.join("\n"), findings.len()))
}

fn tracked_files(root: &Path) -> Result<Vec<File>, String> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(list).current_dir(root).output();
    let output = output.map_err(|error| format!("error: cannot run git: {error}"))?;
    if !output.status.success() {
        return Err("error: git ls-files failed\n  hint: tidy works on a git checkout".to_owned());
    }
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names.split('\0').filter(|name| !name.is_empty()).filter_map(|name| read(root, name)).collect())
}

/// Reads one file; `None` if it is listed but deleted in the work tree.
fn read(root: &Path, name: &str) -> Option<File> {
    let bytes = std::fs::read(root.join(name)).ok()?;
    let size_bytes = bytes.len() as u64;
    Some(File { path: name.to_owned(), size_bytes, text: String::from_utf8(bytes).ok() })
}

#[cfg(test)]
fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), size_bytes: text.len() as u64, text: Some(text.to_owned()) }
}

#[cfg(test)]
fn found(rule: Rule, files: &[File]) -> Vec<String> {
    rule(files).iter().map(Finding::to_string).collect()
}
