//! A changed row, borrowed for the length of a call, and its owned copy.

use std::sync::Arc;

use tidegate_core::{CommitTs, RawChange, StartTs, TableId};

use crate::key::{parse_record_key, strip_keyspace};
use crate::meta::TableInfo;
use crate::row::{CellError, DecodeError, RowView, TableLayout};

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// It came into being: only the new row exists.
    Insert,
    /// It changed: both rows exist.
    Update,
    /// It is gone: only the old row exists.
    Delete,
}

/// A committed change of one row, decoded with the schema in force at `commit_ts − 1` (I6). It borrows from
/// the change it came in and cannot outlive the call it is handed to; [`RowChanged::to_owned`] keeps it.
#[derive(Clone, Copy, Debug)]
pub struct RowChanged<'a> {
    /// The physical table: a partition's id in a partitioned table.
    pub table_id: TableId,
    /// What happened.
    pub kind: RowKind,
    /// The row before; set for updates and deletes.
    pub pre: Option<RowView<'a>>,
    /// The row after; set for inserts and updates.
    pub row: Option<RowView<'a>>,
    /// The table version that both rows are read with; read-only.
    pub layout: &'a Arc<TableLayout>,
    /// The change as it came: keys, values and timestamps.
    pub raw: &'a RawChange,
}

impl<'a> RowChanged<'a> {
    /// Start timestamp of the transaction.
    pub const fn start_ts(&self) -> StartTs {
        self.raw.start_ts
    }

    /// Commit timestamp of the transaction.
    pub const fn commit_ts(&self) -> CommitTs {
        self.raw.commit_ts
    }

    /// The raw record key without keyspace prefix: the row's identity.
    pub fn key(&self) -> &'a [u8] {
        strip_keyspace(&self.raw.key).1
    }

    /// The table's metadata; read-only.
    pub fn table(&self) -> &'a TableInfo {
        self.layout.table()
    }

    /// The row that describes the change: the new one, or of a delete the old one.
    pub fn current(&self) -> Option<&RowView<'a>> {
        self.row.as_ref().or(self.pre.as_ref())
    }

    /// A copy that can be kept. Copies no row bytes: it shares the buffers the change came in, and keeps them
    /// alive.
    pub fn to_owned(&self) -> OwnedRow {
        OwnedRow {
            table_id: self.table_id,
            kind: self.kind,
            raw: self.raw.clone(),
            layout: self.layout.clone(),
        }
    }
}

/// A changed row that can be kept and sent to other threads.
#[derive(Clone, Debug)]
pub struct OwnedRow {
    /// The physical table.
    pub table_id: TableId,
    /// What happened.
    pub kind: RowKind,
    /// The change as it came.
    pub raw: RawChange,
    /// The table version that both rows are read with.
    pub layout: Arc<TableLayout>,
}

impl OwnedRow {
    /// The borrowed form again.
    ///
    /// # Errors
    /// [`DecodeError`] if key or values are no row of the table; not for rows that were decoded before.
    pub fn view(&self) -> Result<RowChanged<'_>, DecodeError> {
        let key = parse_record_key(&self.raw.key)
            .map_err(|error| self.layout.error(None, 0, CellError::Datum(error)))?;
        let (pre, row) = match self.kind {
            RowKind::Insert => (None, Some(&self.raw.value)),
            RowKind::Update => (Some(&self.raw.old_value), Some(&self.raw.value)),
            RowKind::Delete => (Some(&self.raw.old_value), None),
        };
        let read = |value| self.layout.row(key.handle, value);
        Ok(RowChanged {
            table_id: self.table_id,
            kind: self.kind,
            pre: pre.map(|value| read(value)).transpose()?,
            row: row.map(|value| read(value)).transpose()?,
            layout: &self.layout,
            raw: &self.raw,
        })
    }

    /// Start timestamp of the transaction.
    pub const fn start_ts(&self) -> StartTs {
        self.raw.start_ts
    }

    /// Commit timestamp of the transaction.
    pub const fn commit_ts(&self) -> CommitTs {
        self.raw.commit_ts
    }

    /// The raw record key without keyspace prefix.
    pub fn key(&self) -> &[u8] {
        strip_keyspace(&self.raw.key).1
    }

    /// Bytes of key and values, the measure of memory limits. Buffers may be shared with other rows.
    pub fn size_bytes(&self) -> usize {
        self.raw.size_bytes()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_core::{Op, RegionId};

    use super::*;
    use crate::key::{Handle, record_key};
    use crate::value::Value;

    /// `ints(id int primary key, v int)` with one row: format v2, column 2 = 7.
    fn change(kind: RowKind) -> OwnedRow {
        let table = r#"{"id":45,"pk_is_handle":true,"cols":[
            {"id":1,"name":"id","type":{"Tp":3,"Flag":4099},"state":5},
            {"id":2,"name":"v","offset":1,"type":{"Tp":3},"state":5}]}"#;
        let table = TableInfo::parse(table.as_bytes()).expect("a table");
        let value = |v: u8| Bytes::copy_from_slice(&[0x80, 0, 1, 0, 0, 0, 2, 1, 0, v]);
        let raw = RawChange {
            op: Op::Put,
            key: record_key(None, TableId(45), &Handle::Int(3)).into(),
            value: value(7),
            old_value: value(6),
            start_ts: StartTs::new(10),
            commit_ts: CommitTs::new(11),
            region_id: RegionId(1),
        };
        OwnedRow { table_id: TableId(45), kind, raw, layout: Arc::new(TableLayout::new(Arc::new(table))) }
    }

    fn int(row: Option<RowView<'_>>, index: usize) -> Option<i64> {
        match row?.column(index) {
            Ok(Value::Int(value)) => Some(value),
            other => unreachable!("an integer, not {other:?}"),
        }
    }

    #[test]
    fn each_kind_of_change_shows_the_rows_that_exist() {
        for (kind, pre, row) in [
            (RowKind::Insert, None, Some(7)),
            (RowKind::Update, Some(6), Some(7)),
            (RowKind::Delete, Some(6), None),
        ] {
            let owned = change(kind);
            let view = owned.view().expect("a sound row");
            assert_eq!((int(view.pre, 1), int(view.row, 1)), (pre, row), "{kind:?}");
            assert_eq!(int(view.current().copied(), 0), Some(3), "the handle column comes from the key");
        }
    }

    #[test]
    fn keeping_a_row_copies_no_bytes() {
        let owned = change(RowKind::Update);
        let kept = owned.view().expect("a sound row").to_owned();
        assert_eq!(kept.raw.value.as_ptr(), owned.raw.value.as_ptr());
        assert!(Arc::ptr_eq(&kept.layout, &owned.layout));
        assert_eq!((kept.start_ts().get(), kept.commit_ts().get()), (10, 11));
    }

    #[test]
    fn damaged_keys_and_values_are_errors() {
        let mut owned = change(RowKind::Insert);
        owned.raw.key = Bytes::from_static(b"t");
        assert!(owned.view().is_err());
        let mut owned = change(RowKind::Insert);
        owned.raw.value = Bytes::from_static(&[0x80, 0, 9]);
        assert!(owned.view().is_err());
    }
}
