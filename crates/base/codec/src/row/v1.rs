//! Row format v1: pairs of datums, column id and value (`reference/tidb-keys-and-rows.md` §4.2).

use super::Found;
use crate::datum::{self, Datum};

/// Finds column `id` by walking the pairs; the last of several wins, as in TiDB. The walk makes a column's
/// cost grow with the row, which is bearable for the few rows that still have this format.
pub(crate) fn find(value: &[u8], id: i64) -> Found<'_> {
    // An empty row is a single nil flag.
    if value == [0] {
        return Found::Absent;
    }
    let mut rest = value;
    let mut found = Found::Absent;
    while !rest.is_empty() {
        let offset = value.len() - rest.len();
        let Some((at, datum, after)) = pair(rest) else { return Found::Damaged(offset) };
        if at == id {
            found = Found::Datum(datum);
        }
        rest = after;
    }
    match found {
        Found::Datum([0]) => Found::Null,
        other => other,
    }
}

/// The column id and the value datum at the front of `bytes`, and what follows.
fn pair(bytes: &[u8]) -> Option<(i64, &[u8], &[u8])> {
    let (Datum::Int(id), rest) = datum::decode(bytes).ok()? else { return None };
    let (value, rest) = datum::split(rest).ok()?;
    Some((id, value, rest))
}
