//! Applying an admitted batch: all of it or nothing.

use std::collections::BTreeMap;

use prost::Message;
use tidegate_contract::error::{Breach, SfErrorCode};
use tidegate_core::ResolvedTs;

use super::batch::{Batch, Entry, Row, RowKind};
use super::judge::Unjudged;
use super::partition::{Partition, Refusal};
use super::record::Record;
use super::version::{Candidate, Verdict, judge};
use crate::content::Content;

/// Where the newest versions are looked up.
pub(crate) trait Documents {
    /// Why a lookup fails.
    type Error;

    /// The newest known version of a document.
    fn newest(&self, doc: u64) -> Result<Option<Record>, Self::Error>;

    /// A stored document in terms of the newest schema, so that a patch can be put over it.
    fn current(&self, record: &Record) -> Result<Content, Self::Error>;
}

/// What a batch does.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Applied {
    /// The new version of each changed document, with what was known of it before.
    pub(crate) changes: BTreeMap<u64, Change>,
    /// Rows that changed a document.
    pub(crate) rows_applied: u64,
    /// Rows that found an equal or newer version.
    pub(crate) rows_superseded: u64,
    /// Rows applied although an earlier epoch had promised that none would come.
    pub(crate) rows_late: u64,
    /// Rows refused because their version is taken by other content.
    pub(crate) conflicts: u64,
    /// Entries that were skipped, with the reason.
    pub(crate) errors: Vec<(usize, Breach)>,
}

/// One changed document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// What was known before the batch.
    pub(crate) before: Option<Record>,
    /// What is known after it.
    pub(crate) after: Record,
}

/// Judges every row of an admitted batch against what is known, and collects what it changes. Nothing is
/// written here: the caller stores the changes, the partition and the receipt in one transaction.
pub(super) fn apply<D: Documents>(
    batch: &Batch,
    partition: &Partition,
    documents: &D,
) -> Result<Applied, Unjudged<D::Error>> {
    let mut applied = Applied::default();
    for (index, entry) in batch.entries.iter().enumerate() {
        let breach = match entry {
            Entry::Row(row) => apply_row(row, batch.schema_version, partition, documents, &mut applied)
                .map_err(Unjudged::Failed)?
                .map(|breach| breach.within(format_args!("entries[{index}].row_mutation"))),
            Entry::Bad(breach) => Some(breach.clone()),
            Entry::Progress(_) | Entry::Barrier(_) => None,
        };
        match breach {
            Some(breach) if batch.continue_on_error => applied.errors.push((index, breach)),
            Some(breach) => return Err(Refusal::at(partition, breach).into()),
            None => {}
        }
    }
    Ok(applied)
}

fn apply_row<D: Documents>(
    row: &Row,
    schema_version: u32,
    partition: &Partition,
    documents: &D,
    applied: &mut Applied,
) -> Result<Option<Breach>, D::Error> {
    let known = match applied.changes.get(&row.doc) {
        Some(change) => Some(change.after.clone()),
        None => documents.newest(row.doc)?,
    };
    let content = row.content.encode_to_vec();
    let candidate = Candidate {
        version: row.version,
        kind: row.kind,
        partition: partition.number,
        content: &content,
        resolved: partition.resolved,
    };
    match judge(known.as_ref(), candidate) {
        Verdict::Superseded => applied.rows_superseded += 1,
        Verdict::Conflict => {
            applied.conflicts += 1;
            return Ok(Some(conflict(row)));
        }
        verdict @ (Verdict::Apply | Verdict::ApplyLate) => {
            applied.rows_late += u64::from(verdict == Verdict::ApplyLate);
            applied.rows_applied += 1;
            let content = match row.kind {
                RowKind::Upsert => Some(content),
                RowKind::Delete => None,
                RowKind::Patch => Some(patched(row, known.as_ref(), documents)?.encode_to_vec()),
            };
            let schema_version = if content.is_some() { schema_version } else { 0 };
            let after = Record { version: row.version, partition: partition.number, schema_version, content };
            let before = match applied.changes.remove(&row.doc) {
                Some(change) => change.before,
                None => known,
            };
            applied.changes.insert(row.doc, Change { before, after });
        }
    }
    Ok(None)
}

/// A patch put over the document; over an empty one if there is none.
fn patched<D: Documents>(row: &Row, known: Option<&Record>, documents: &D) -> Result<Content, D::Error> {
    match known {
        Some(record) if record.is_live() => Ok(documents.current(record)?.patched(row.content.clone())),
        _ => Ok(row.content.clone()),
    }
}

fn conflict(row: &Row) -> Breach {
    let detail = format!("document {} already has other content at version {}", row.doc, row.version);
    Breach::new(SfErrorCode::SfVersionConflict, "commit_ts", detail)
}

/// Below this, no source can bring anything back: tombstones at or below it may be forgotten.
pub(crate) fn forgettable<'a>(partitions: impl Iterator<Item = &'a Partition>) -> ResolvedTs {
    partitions.filter(|partition| partition.retired.is_none()).map(|p| p.resolved).min().unwrap_or_default()
}
