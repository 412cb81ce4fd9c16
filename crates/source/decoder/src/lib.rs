//! A raw change plus its table becomes a typed row event (`reference/tidb-keys-and-rows.md` §9).
//!
//! Pure and without state: the caller brings the table as of commit timestamp − 1 (I6), and the event borrows
//! from both. Columns are decoded when they are asked for, not here.

mod error;

use std::sync::Arc;

use tidegate_codec::event::{RowChanged, RowKind};
use tidegate_codec::key::{Handle, RecordKey, parse_record_key, strip_keyspace};
use tidegate_codec::row::{RowView, TableLayout};
use tidegate_core::{Op, RawChange};

pub use error::{DecodeError, Image, Reason};

/// What to do with the checksum that TiDB may store in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// Do not look at it.
    #[default]
    Ignore,
    /// Refuse a row that does not match its checksum; rows without one pass.
    Verify,
}

/// Turns raw changes into row events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decoder {
    checksums: Checksums,
}

impl Decoder {
    /// A decoder.
    pub const fn new(checksums: Checksums) -> Self {
        Self { checksums }
    }

    /// Decodes `change` of the table that `layout` describes. `None` if the transaction inserted and deleted
    /// the row: there is nothing to tell.
    ///
    /// Whether a put is an insert or an update is told by its old value alone, so a store that leaves old
    /// values out turns updates into inserts; the change feed must be asked for old values, as the puller
    /// does. A put without a new value is refused: TiDB never writes an empty row.
    ///
    /// # Errors
    /// A key that is no record key, a row that is damaged as a whole, a checksum that does not match.
    #[inline]
    pub fn decode<'a>(
        &self,
        change: &'a RawChange,
        layout: &'a Arc<TableLayout>,
    ) -> Result<Option<RowChanged<'a>>, DecodeError> {
        let (old, new) = (!change.old_value.is_empty(), change.op == Op::Put);
        let kind = match (old, new) {
            (false, false) => return Ok(None),
            (false, true) => RowKind::Insert,
            (true, true) => RowKind::Update,
            (true, false) => RowKind::Delete,
        };
        let at = Place { change, layout };
        let RecordKey { table_id, handle, .. } =
            parse_record_key(&change.key).map_err(|source| at.fail(Reason::Key(source)))?;
        let (_, key) = strip_keyspace(&change.key);
        let pre = if old { Some(self.image(at, handle, key, Image::Old)?) } else { None };
        let row = if new { Some(self.image(at, handle, key, Image::New)?) } else { None };
        Ok(Some(RowChanged { table_id, kind, pre, row, layout, raw: change }))
    }

    #[inline]
    fn image<'a>(
        &self,
        at: Place<'a>,
        handle: Handle<'a>,
        key: &'a [u8],
        image: Image,
    ) -> Result<RowView<'a>, DecodeError> {
        let value = match image {
            Image::Old => &at.change.old_value,
            Image::New => &at.change.value,
        };
        let damaged = |source| at.fail(Reason::Row { image, source: Box::new(source) });
        let row = at.layout.row(handle, value).map_err(damaged)?;
        if self.checksums == Checksums::Verify {
            verify(&row, key, image).map_err(|source| at.fail(Reason::Checksum { image, source }))?;
        }
        Ok(row)
    }
}

/// Version 0 sums the columns as the table had them when the row was written. An old image may have been
/// written under an earlier definition, with which this one cannot be compared
/// (`reference/tidb-keys-and-rows.md` §8.2).
fn verify(row: &RowView<'_>, key: &[u8], image: Image) -> Result<(), tidegate_codec::row::ChecksumError> {
    let by_columns = row.checksum()?.is_some_and(|checksum| checksum.version == 0);
    if by_columns && image == Image::Old { Ok(()) } else { row.verify_checksum(key) }
}

/// What an error names.
#[derive(Clone, Copy)]
struct Place<'a> {
    change: &'a RawChange,
    layout: &'a TableLayout,
}

impl Place<'_> {
    #[cold]
    fn fail(&self, reason: Reason) -> DecodeError {
        DecodeError {
            table: self.layout.table().name.to_string(),
            table_id: self.layout.table().id,
            key: self.change.key.clone(),
            commit_ts: self.change.commit_ts,
            reason,
        }
    }
}

#[cfg(test)]
mod tests;
