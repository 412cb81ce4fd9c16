//! Which of two versions of a document wins.

use tidegate_core::{CommitTs, ResolvedTs};

use super::batch::RowKind;
use super::record::Record;

/// What becomes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It becomes the document's newest version.
    Apply,
    /// It does, although its partition had promised to send nothing that old any more: the promise was wrong.
    ApplyLate,
    /// The document already has it, or something newer.
    Superseded,
    /// The document has another content under the same version.
    Conflict,
}

/// A row as far as the verdict needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) version: CommitTs,
    pub(crate) kind: RowKind,
    /// The number of the partition that sends it.
    pub(crate) partition: u32,
    /// Its encoded content; empty for a delete.
    pub(crate) content: &'a [u8],
    /// What its partition has promised durably: everything at or below has been sent before.
    pub(crate) resolved: ResolvedTs,
}

/// Judges a row against what is known of its document.
///
/// A row at or below its partition's resolved timestamp was sent before. If the document is unknown, it was
/// deleted since and its tombstone is no longer kept: this rule is what makes it safe to forget tombstones
/// once every partition's progress has passed them (I14).
pub(crate) fn judge(known: Option<&Record>, row: Candidate<'_>) -> Verdict {
    let sent_before = row.version.ts() <= row.resolved.ts();
    let Some(known) = known else {
        return if sent_before { Verdict::Superseded } else { Verdict::Apply };
    };
    match row.version.cmp(&known.version) {
        std::cmp::Ordering::Less => Verdict::Superseded,
        std::cmp::Ordering::Greater if sent_before => Verdict::ApplyLate,
        std::cmp::Ordering::Greater => Verdict::Apply,
        std::cmp::Ordering::Equal => judge_equal(known, row),
    }
}

/// Two rows of one transaction about one document. When a row moves between partitions, one partition sees a
/// delete and the other an upsert: the document exists. Anything else must be the same row again.
fn judge_equal(known: &Record, row: Candidate<'_>) -> Verdict {
    let moved = known.partition != row.partition;
    match (&known.content, row.kind) {
        (None, RowKind::Delete) | (Some(_), RowKind::Patch) => Verdict::Superseded,
        (Some(_), RowKind::Delete) if moved => Verdict::Superseded,
        (None, RowKind::Upsert) if moved => Verdict::Apply,
        (Some(content), RowKind::Upsert) if content == row.content => Verdict::Superseded,
        _ => Verdict::Conflict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(version: u64, partition: u32, content: &[u8]) -> Record {
        let version = CommitTs::new(version);
        Record { version, partition, schema_version: 1, content: Some(content.to_vec()) }
    }

    fn tombstone(version: u64, partition: u32) -> Record {
        Record { version: CommitTs::new(version), partition, schema_version: 0, content: None }
    }

    fn row(version: u64, kind: RowKind, partition: u32, content: &[u8], resolved: u64) -> Candidate<'_> {
        let (version, resolved) = (CommitTs::new(version), ResolvedTs::new(resolved));
        Candidate { version, kind, partition, content, resolved }
    }

    #[test]
    fn the_higher_version_wins_in_either_order() {
        assert_eq!(judge(Some(&live(5, 0, b"a")), row(6, RowKind::Upsert, 0, b"b", 0)), Verdict::Apply);
        assert_eq!(judge(Some(&live(6, 0, b"b")), row(5, RowKind::Upsert, 0, b"a", 0)), Verdict::Superseded);
        assert_eq!(judge(Some(&live(5, 0, b"a")), row(6, RowKind::Delete, 0, b"", 0)), Verdict::Apply);
    }

    #[test]
    fn an_older_write_does_not_bring_a_deleted_document_back() {
        assert_eq!(judge(Some(&tombstone(9, 0)), row(8, RowKind::Upsert, 0, b"a", 0)), Verdict::Superseded);
        // The tombstone is gone, but progress has passed the write.
        assert_eq!(judge(None, row(8, RowKind::Upsert, 0, b"a", 9)), Verdict::Superseded);
        assert_eq!(judge(None, row(10, RowKind::Upsert, 0, b"a", 9)), Verdict::Apply);
    }

    #[test]
    fn a_row_that_moves_between_partitions_exists_in_whichever_order_its_halves_come() {
        let upsert = row(7, RowKind::Upsert, 1, b"a", 0);
        assert_eq!(judge(Some(&tombstone(7, 0)), upsert), Verdict::Apply);
        assert_eq!(judge(Some(&live(7, 1, b"a")), row(7, RowKind::Delete, 0, b"", 0)), Verdict::Superseded);
    }

    #[test]
    fn one_version_with_two_contents_is_a_conflict_and_with_one_a_repetition() {
        assert_eq!(judge(Some(&live(7, 0, b"a")), row(7, RowKind::Upsert, 0, b"a", 0)), Verdict::Superseded);
        assert_eq!(judge(Some(&live(7, 0, b"a")), row(7, RowKind::Upsert, 0, b"b", 0)), Verdict::Conflict);
        assert_eq!(judge(Some(&live(7, 0, b"a")), row(7, RowKind::Delete, 0, b"", 0)), Verdict::Conflict);
        assert_eq!(judge(Some(&tombstone(7, 0)), row(7, RowKind::Upsert, 0, b"a", 0)), Verdict::Conflict);
        assert_eq!(judge(Some(&tombstone(7, 0)), row(7, RowKind::Delete, 1, b"", 0)), Verdict::Superseded);
    }

    #[test]
    fn a_row_below_a_broken_promise_is_kept_and_reported() {
        assert_eq!(judge(Some(&live(5, 0, b"a")), row(6, RowKind::Upsert, 0, b"b", 8)), Verdict::ApplyLate);
    }
}
