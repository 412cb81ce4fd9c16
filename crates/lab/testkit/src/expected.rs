//! `NAME.expected.json.zst`: what TiDB answered at given timestamps.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use tidegate_core::Ts;

use crate::file::{decompress, line_error, name_of, read};
use crate::{DataError, LineProblem};

/// What TiDB answered while a history was recorded.
#[derive(Clone, Debug, Deserialize)]
pub struct Expected {
    /// The recording's name.
    pub name: String,
    /// When recording began.
    pub start_ts: Ts,
    /// When it ended.
    pub end_ts: Ts,
    /// Script statements, in order; empty for the bank recordings.
    #[serde(default)]
    pub statements: Vec<Statement>,
    /// Every table at each of some timestamps, ascending.
    pub snapshots: Vec<Snapshot>,
    /// Rows of `ADMIN SHOW DDL JOBS` at the end, newest first: column name to text.
    #[serde(default)]
    pub ddl_jobs: Vec<BTreeMap<String, Option<String>>>,
}

/// A statement and a timestamp taken after it.
#[derive(Clone, Debug, Deserialize)]
pub struct Statement {
    /// As it was sent.
    pub sql: String,
    /// Taken after it returned; absent if it failed.
    #[serde(default)]
    pub after_ts: Option<Ts>,
}

/// All user tables at one timestamp.
#[derive(Clone, Debug, Deserialize)]
pub struct Snapshot {
    /// The timestamp read at.
    pub ts: Ts,
    /// `database.table` to its content.
    pub tables: BTreeMap<String, TableSnapshot>,
}

/// `SELECT *` of one table, in session time zone UTC.
#[derive(Clone, Debug, Deserialize)]
pub struct TableSnapshot {
    /// Column names, in the table's order.
    pub columns: Vec<String>,
    /// Rows in no promised order; one cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// `SHOW CREATE TABLE`, taken a moment after the rows.
    #[serde(default)]
    pub create: String,
}

/// One value as MySQL's text protocol gives it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cell {
    /// SQL NULL.
    Null,
    /// Plain text.
    Text(String),
    /// Bytes that are not plain text.
    Bytes(Bytes),
}

impl Expected {
    /// Reads an expectation from a file.
    ///
    /// # Errors
    /// [`DataError`] if the file cannot be read or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        Self::from_zstd(&name_of(path), &read(path)?)
    }

    /// Reads an expectation from a file's bytes; `file` is the name that errors show.
    ///
    /// # Errors
    /// As [`Expected::open`].
    pub fn from_zstd(file: &str, compressed: &[u8]) -> Result<Self, DataError> {
        let text = decompress(file, compressed)?;
        serde_json::from_slice(&text).map_err(|e| line_error(file, e.line(), LineProblem::Json(e)))
    }
}

impl Cell {
    /// The text's or bytes' raw form; `None` for NULL.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.as_bytes()),
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

/// A cell's JSON: `null`, a string, or `{"hex": "…"}`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum CellJson {
    Text(String),
    Hex { hex: String },
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Option::<CellJson>::deserialize(deserializer)? {
            None => Self::Null,
            Some(CellJson::Text(text)) => Self::Text(text),
            Some(CellJson::Hex { hex }) => {
                Self::Bytes(unhex(&hex).ok_or_else(|| D::Error::custom("not an even number of hex digits"))?)
            }
        })
    }
}

fn unhex(text: &str) -> Option<Bytes> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let digits = digits?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    #[test]
    fn cells_are_null_text_or_hex() {
        let cells: Vec<Cell> = serde_json::from_str(r#"[null, "a", {"hex": "00ff"}]"#).expect("three cells");
        assert_eq!(
            cells,
            [Cell::Null, Cell::Text("a".into()), Cell::Bytes(Bytes::from_static(&[0x00, 0xff]))]
        );
        assert!(serde_json::from_str::<Cell>(r#"{"hex": "0"}"#).is_err());
    }

    #[test]
    fn every_bank_snapshot_holds_the_invariant_sum() {
        // The recording's notes: at every snapshot the sum of account.balance is 200000.00.
        let expected = Expected::open(data::path("bank.expected.json.zst")).expect("recorded data");
        assert!(!expected.snapshots.is_empty());
        for snapshot in &expected.snapshots {
            let (_, account) = snapshot
                .tables
                .iter()
                .find(|(name, _)| name.ends_with(".account"))
                .expect("the account table");
            let balance = account.columns.iter().position(|name| name == "balance").expect("its balance");
            let cents: i64 = account.rows.iter().map(|row| cents_of(&row[balance])).sum();
            assert_eq!(cents, 20_000_000, "at {}", snapshot.ts);
        }
    }

    fn cents_of(cell: &Cell) -> i64 {
        let Cell::Text(text) = cell else { panic!("a balance is text") };
        let (whole, cents) = text.split_once('.').expect("two decimals");
        assert_eq!(cents.len(), 2);
        format!("{whole}{cents}").parse().expect("a number")
    }
}
