//! The live transactions of a demo with a data directory, kept so that the upstream is the same after a
//! crash.
//!
//! The upstream lives in this process and dies with it, a cluster would not. So each transaction is written
//! down and synced before it is committed, and its commit timestamp after. At the next start all of them are
//! part of the upstream's history, with their own timestamps; only the last one can be without, because the
//! process died in between. Whether it had been committed is unknown, so it is committed again: it sets the
//! same rows to the same values.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write as _};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_core::{CommitTs, Op};
use tidegate_playground::Write;
use tidegate_testkit::{History, Version};

use crate::failure::CliError;

/// A day of live changes. At the limit the demo stops changing rows rather than filling the disk.
const BYTES_MAX: u64 = 256 << 20;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    /// About to be committed: keys, and values or none for a delete, in base64.
    Intent(Vec<(String, Option<String>)>),
    /// The intent before it was committed then.
    Committed(CommitTs),
}

/// The open journal.
pub(crate) struct Journal {
    file: File,
    bytes: u64,
}

/// What an earlier process left.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Committed transactions, in order.
    pub(crate) versions: Vec<Version>,
    /// The transaction whose outcome is unknown.
    pub(crate) in_doubt: Vec<Write>,
}

impl Journal {
    /// Opens the journal in `folder`, and what it holds. A torn last line was never followed by a commit, and
    /// is cut off.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Recovered), CliError> {
        let fail = |source| CliError::DataDir { path: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(fail)?;
        let path = folder.join("live.jsonl");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(fail)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(fail)?;
        let (recovered, whole) = recover(&text)?;
        file.set_len(whole).map_err(fail)?;
        file.seek(SeekFrom::End(0)).map_err(fail)?;
        Ok((Self { file, bytes: whole }, recovered))
    }

    /// Whether there is room for more.
    pub(crate) const fn has_room(&self) -> bool {
        self.bytes < BYTES_MAX
    }

    /// Writes down what is about to be committed. Durable when it returns.
    pub(crate) fn intend(&mut self, writes: &[Write]) -> Result<(), std::io::Error> {
        let pairs = writes.iter().map(|write| match write {
            Write::Put { key, value } => (STANDARD.encode(key), Some(STANDARD.encode(value))),
            Write::Delete { key } => (STANDARD.encode(key), None),
        });
        self.append(&Line::Intent(pairs.collect()))?;
        self.file.sync_data()
    }

    /// Writes down that the last intent was committed. Durable with the next intent.
    pub(crate) fn committed(&mut self, commit_ts: CommitTs) -> Result<(), std::io::Error> {
        self.append(&Line::Committed(commit_ts))
    }

    fn append(&mut self, line: &Line) -> Result<(), std::io::Error> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

impl Recovered {
    /// Puts the committed transactions behind the recorded ones.
    pub(crate) fn extend(&self, history: &mut History) {
        history.log.extend(self.versions.iter().cloned());
        if let Some(last) = self.versions.last() {
            history.header.end_ts = history.header.end_ts.max(last.commit_ts.ts());
        }
    }
}

/// What the lines say, and how many bytes of them are whole.
fn recover(text: &[u8]) -> Result<(Recovered, u64), CliError> {
    let mut recovered = Recovered::default();
    let mut whole = 0;
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if !line.ends_with(b"\n") {
            break;
        }
        let damaged = |reason: &dyn std::fmt::Display| CliError::Unexpected {
            what: format!("line {} of the demo's journal is damaged: {reason}", number + 1),
        };
        match serde_json::from_slice(line).map_err(|error| damaged(&error))? {
            Line::Intent(pairs) => {
                let writes = pairs.into_iter().map(write).collect::<Result<_, _>>();
                recovered.in_doubt = writes.map_err(|error| damaged(&error))?;
            }
            Line::Committed(commit_ts) => {
                let writes = std::mem::take(&mut recovered.in_doubt);
                recovered.versions.extend(writes.into_iter().map(|write| version(write, commit_ts)));
            }
        }
        whole += line.len() as u64;
    }
    Ok((recovered, whole))
}

fn write((key, value): (String, Option<String>)) -> Result<Write, base64::DecodeError> {
    let key = STANDARD.decode(key)?;
    Ok(match value {
        Some(value) => Write::put(key, STANDARD.decode(value)?),
        None => Write::delete(key),
    })
}

fn version(write: Write, commit_ts: CommitTs) -> Version {
    let (op, key, value) = match write {
        Write::Put { key, value } => (Op::Put, key, value),
        Write::Delete { key } => (Op::Delete, key, Bytes::new()),
    };
    Version { op, key, value, start_ts: commit_ts.prev().ts().as_start(), commit_ts }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static str, value: &'static str) -> Write {
        Write::put(key, value)
    }

    #[test]
    fn committed_transactions_come_back_with_their_timestamps_and_the_last_one_in_doubt() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (mut journal, before) = Journal::open(folder.path()).expect("a new journal");
        assert_eq!(before, Recovered::default());
        journal.intend(&[put("a", "1"), Write::delete("b")]).expect("a writable file");
        journal.committed(CommitTs::new(7)).expect("a writable file");
        journal.intend(&[put("a", "2")]).expect("a writable file");
        let (_, after) = Journal::open(folder.path()).expect("its own journal");
        let versions: Vec<_> =
            after.versions.iter().map(|one| (one.op, &one.key[..], one.commit_ts)).collect();
        assert_eq!(
            versions,
            [(Op::Put, &b"a"[..], CommitTs::new(7)), (Op::Delete, &b"b"[..], CommitTs::new(7))]
        );
        assert_eq!(after.in_doubt, [put("a", "2")]);
    }

    #[test]
    fn a_torn_last_line_is_cut_off_and_the_journal_goes_on_behind_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("live.jsonl");
        std::fs::write(&path, "{\"committed\":5}\n{\"intent\":[[\"YQ").expect("a writable folder");
        let (mut journal, recovered) = Journal::open(folder.path()).expect("a torn journal opens");
        assert_eq!(recovered, Recovered::default());
        journal.intend(&[put("a", "1")]).expect("a writable file");
        let (_, recovered) = Journal::open(folder.path()).expect("its own journal");
        assert_eq!(recovered.in_doubt, [put("a", "1")]);
    }

    #[test]
    fn a_damaged_line_inside_is_an_error_and_not_a_loss() {
        let error = recover(b"{\"intent\":[]}\nnonsense\n{\"committed\":5}\n").expect_err("damaged");
        assert!(error.to_string().starts_with("line 2 of the demo's journal is damaged"), "{error}");
    }
}
