//! `NAME.history.jsonl.zst`: the committed versions of a cluster between two timestamps.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_core::{ClusterId, CommitTs, Op, StartTs, Ts};

use crate::file::{base64, decompress, line_error, lines, name_of, read, to_base64, write};
use crate::{DataError, LineProblem};

/// The format's name in the first line of each history.
pub const FORMAT: &str = "tidegate-history-1";

/// The first line of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The recording's name.
    pub name: String,
    /// The cluster it was recorded from.
    pub cluster_id: ClusterId,
    /// The log begins after it; the base shows metadata as of it.
    pub base_ts: Ts,
    /// The last timestamp that the log covers.
    pub end_ts: Ts,
}

/// One committed version of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Put or delete.
    pub op: Op,
    /// The raw key.
    pub key: Bytes,
    /// The value; empty for a delete.
    pub value: Bytes,
    /// Start timestamp of the transaction.
    pub start_ts: StartTs,
    /// Commit timestamp of the transaction.
    pub commit_ts: CommitTs,
}

/// A recorded history: the newest version at `base_ts` of every metadata key, and every version with
/// `base_ts < commit_ts <= end_ts` in commit order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Name, cluster and bounds.
    pub header: Header,
    /// Metadata as of `base_ts`, one version for each key.
    pub base: Vec<Version>,
    /// What happened after, in commit order.
    pub log: Vec<Version>,
}

#[derive(Serialize, Deserialize)]
struct HeaderLine<'a> {
    #[serde(borrow)]
    format: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    cluster_id: u64,
    base_ts: u64,
    end_ts: u64,
    base: usize,
    log: usize,
}

#[derive(Serialize, Deserialize)]
enum OpName {
    #[serde(rename = "PUT")]
    Put,
    #[serde(rename = "DELETE")]
    Delete,
}

#[derive(Serialize, Deserialize)]
struct VersionLine<'a> {
    commit_ts: u64,
    start_ts: u64,
    op: OpName,
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, default)]
    value: Cow<'a, str>,
}

impl History {
    /// Reads a history from a file.
    ///
    /// # Errors
    /// [`DataError`] with the line and the reason if the file cannot be read or is damaged: not zstd, cut
    /// short, another format, a line that does not parse, versions out of order or out of bounds, or other
    /// counts than the header promises.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        Self::from_zstd(&name_of(path), &read(path)?)
    }

    /// Reads a history from a file's bytes; `file` is the name that errors show.
    ///
    /// # Errors
    /// As [`History::open`].
    pub fn from_zstd(file: &str, compressed: &[u8]) -> Result<Self, DataError> {
        let text = decompress(file, compressed)?;
        let mut lines = lines(&text);
        let (number, first) = lines.next().unwrap_or((1, b""));
        let header: HeaderLine<'_> =
            serde_json::from_slice(first).map_err(|e| line_error(file, number, LineProblem::Json(e)))?;
        if header.format != FORMAT {
            let found = header.format.into_owned();
            return Err(line_error(file, number, LineProblem::Format { found, expected: FORMAT }));
        }
        let mut parts = Parts::new(&header);
        for (number, line) in lines {
            parts.add(line).map_err(|problem| line_error(file, number, problem))?;
        }
        parts.finish(header).map_err(|problem| line_error(file, 1, problem))
    }

    /// Writes the history in the format it is read from.
    ///
    /// # Errors
    /// [`DataError::Io`] when the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), DataError> {
        let path = path.as_ref();
        let io = |source: std::io::Error| DataError::Io { file: name_of(path), source };
        let mut text = Vec::new();
        push_line(&mut text, &self.header_line()).map_err(io)?;
        for version in self.base.iter().chain(&self.log) {
            push_line(&mut text, &version.line()).map_err(io)?;
        }
        write(path, &text)
    }

    fn header_line(&self) -> HeaderLine<'_> {
        HeaderLine {
            format: Cow::Borrowed(FORMAT),
            name: Cow::Borrowed(&self.header.name),
            cluster_id: self.header.cluster_id.get(),
            base_ts: self.header.base_ts.get(),
            end_ts: self.header.end_ts.get(),
            base: self.base.len(),
            log: self.log.len(),
        }
    }
}

fn push_line(text: &mut Vec<u8>, line: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.write_all(b"\n")
}

impl Version {
    fn line(&self) -> VersionLine<'_> {
        VersionLine {
            commit_ts: self.commit_ts.get(),
            start_ts: self.start_ts.get(),
            op: match self.op {
                Op::Put => OpName::Put,
                Op::Delete => OpName::Delete,
            },
            key: Cow::Owned(to_base64(&self.key)),
            value: Cow::Owned(to_base64(&self.value)),
        }
    }
}

/// The versions read so far, checked against what the header promises.
struct Parts {
    base_ts: u64,
    end_ts: u64,
    base_len: usize,
    log_len: usize,
    base: Vec<Version>,
    log: Vec<Version>,
    surplus: usize,
}

impl Parts {
    fn new(header: &HeaderLine<'_>) -> Self {
        /// Beyond it the lists grow as lines arrive: a wrong header must not reserve memory.
        const RESERVED_MAX: usize = 1 << 20;
        Self {
            base_ts: header.base_ts,
            end_ts: header.end_ts,
            base_len: header.base,
            log_len: header.log,
            base: Vec::with_capacity(header.base.min(RESERVED_MAX)),
            log: Vec::with_capacity(header.log.min(RESERVED_MAX)),
            surplus: 0,
        }
    }

    fn add(&mut self, line: &[u8]) -> Result<(), LineProblem> {
        let line: VersionLine<'_> = serde_json::from_slice(line).map_err(LineProblem::Json)?;
        let (commit_ts, start_ts) = (line.commit_ts, line.start_ts);
        if commit_ts <= start_ts {
            return Err(LineProblem::StartAfterCommit { commit_ts, start_ts });
        }
        let version = Version {
            op: match line.op {
                OpName::Put => Op::Put,
                OpName::Delete => Op::Delete,
            },
            key: base64("key", &line.key)?,
            value: base64("value", &line.value)?,
            start_ts: StartTs::new(start_ts),
            commit_ts: CommitTs::new(commit_ts),
        };
        if self.base.len() < self.base_len {
            check_range("base", commit_ts, 0, self.base_ts)?;
            self.base.push(version);
        } else if self.log.len() < self.log_len {
            check_range("log", commit_ts, self.base_ts, self.end_ts)?;
            self.check_order(commit_ts)?;
            self.log.push(version);
        } else {
            self.surplus += 1;
        }
        Ok(())
    }

    fn check_order(&self, commit_ts: u64) -> Result<(), LineProblem> {
        match self.log.last().map(|version| version.commit_ts.get()) {
            Some(previous) if previous > commit_ts => Err(LineProblem::Order { commit_ts, previous }),
            _ => Ok(()),
        }
    }

    fn finish(self, header: HeaderLine<'_>) -> Result<History, LineProblem> {
        let promised = self.base_len.saturating_add(self.log_len);
        let found = self.base.len() + self.log.len() + self.surplus;
        if promised != found {
            return Err(LineProblem::Count { promised, found });
        }
        let header = Header {
            name: header.name.into_owned(),
            cluster_id: ClusterId(header.cluster_id),
            base_ts: Ts::new(header.base_ts),
            end_ts: Ts::new(header.end_ts),
        };
        Ok(History { header, base: self.base, log: self.log })
    }
}

fn check_range(part: &'static str, commit_ts: u64, above: u64, to: u64) -> Result<(), LineProblem> {
    if commit_ts > above && commit_ts <= to {
        Ok(())
    } else {
        Err(LineProblem::OutOfRange { part, commit_ts, above, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    const HEADER: &str = concat!(
        r#"{"format":"tidegate-history-1","name":"t","cluster_id":7,"#,
        r#""base_ts":10,"end_ts":20,"base":1,"log":2}"#
    );
    const BASE: &str = r#"{"commit_ts":9,"start_ts":8,"op":"PUT","key":"bQ==","value":"MQ=="}"#;
    const PUT: &str = r#"{"commit_ts":11,"start_ts":10,"op":"PUT","key":"dA==","value":"MQ=="}"#;
    const DELETE: &str = r#"{"commit_ts":13,"start_ts":12,"op":"DELETE","key":"dA==","value":""}"#;

    fn load(lines: &[&str]) -> Result<History, DataError> {
        let compressed = zstd::encode_all(lines.join("\n").as_bytes(), 1).expect("compressing in memory");
        History::from_zstd("t.zst", &compressed)
    }

    fn complaint(lines: &[&str]) -> String {
        load(lines).expect_err("a damaged history").to_string()
    }

    #[test]
    fn a_history_holds_what_its_lines_say() {
        let history = load(&[HEADER, BASE, PUT, DELETE]).expect("a sound history");
        assert_eq!((history.header.name.as_str(), history.header.cluster_id), ("t", ClusterId(7)));
        assert_eq!(history.base.len(), 1);
        let [put, delete] = &history.log[..] else { panic!("two log versions") };
        assert_eq!((put.op, &put.key[..], &put.value[..]), (Op::Put, &b"t"[..], &b"1"[..]));
        assert_eq!(
            (delete.op, delete.commit_ts, delete.start_ts),
            (Op::Delete, CommitTs::new(13), StartTs::new(12))
        );
    }

    #[test]
    fn damaged_lines_are_named_with_the_reason() {
        assert_eq!(
            complaint(&[&HEADER.replace("history-1", "history-9"), BASE, PUT, DELETE]),
            "t.zst, line 1: the format is \"tidegate-history-9\", expected \"tidegate-history-1\""
        );
        assert_eq!(
            complaint(&[HEADER, BASE, &PUT.replace("dA==", "d!=="), DELETE]),
            "t.zst, line 3: field \"key\" is not base64: Invalid symbol 33, offset 1."
        );
        assert_eq!(
            complaint(&[HEADER, BASE, PUT]),
            "t.zst, line 1: the header promises 3 versions, the file holds 2"
        );
        assert_eq!(
            complaint(&[HEADER, BASE, PUT, DELETE, DELETE]),
            "t.zst, line 1: the header promises 3 versions, the file holds 4"
        );
        assert_eq!(complaint(&[HEADER, BASE, DELETE, PUT]), "t.zst, line 4: commit ts 11 comes after 13");
        assert_eq!(
            complaint(&[HEADER, PUT, PUT, DELETE]),
            "t.zst, line 2: commit ts 11 of the base lies outside (0, 10]"
        );
        assert!(complaint(&[HEADER, BASE, "{\"commit_ts\":", DELETE]).starts_with("t.zst, line 3: EOF"));
    }

    #[test]
    fn a_file_that_is_not_zstd_or_is_cut_short_says_so() {
        let plain = History::from_zstd("t.zst", b"{\"format\"").expect_err("not zstd").to_string();
        assert_eq!(plain, "t.zst is not a zstd file: it begins with 7b22666f instead of 28b52ffd");
        let whole = std::fs::read(data::path("types.history.jsonl.zst")).expect("recorded data");
        for kept in [4, 5, 100, whole.len() / 2, whole.len() - 1] {
            let error = History::from_zstd("t.zst", &whole[..kept]).expect_err("a cut file");
            assert!(matches!(error, DataError::Compressed { .. }), "{kept} bytes kept: {error}");
        }
    }

    #[test]
    fn a_saved_history_reads_back_equal() {
        let history = History::open(data::path("types.history.jsonl.zst")).expect("recorded data");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("copy.history.jsonl.zst");
        history.save(&path).expect("a writable folder");
        assert_eq!(History::open(&path).expect("own output"), history);
    }
}
