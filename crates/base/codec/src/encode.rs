//! Writes rows as TiDB would: cells, row values of format v2, clustered keys
//! (`reference/tidb-keys-and-rows.md` §2.3, §4).

use std::borrow::Cow;

use tidegate_core::{Diagnostic, ErrorClass, KeyspaceId, TableId};

use crate::datum::{self, Datum};
use crate::key::{pad_common_handle, record_prefix};
use crate::memcomparable::{float_bytes, int_bytes};
use crate::meta::{ColumnInfo, FieldType, HandleKind, IndexColumn, SqlType};
use crate::row::{CHECKSUM, HEADER_LEN, LARGE, MARKER, Missing, TableLayout};
use crate::value::Value;

/// Data longer than this needs 32-bit offsets.
const SMALL_DATA_MAX: usize = 65_535;
/// A column id above this needs 32-bit ids.
const SMALL_ID_MAX: u32 = 255;
/// The checksum version that current TiDB writes: over the stored bytes and the handle.
const CHECKSUM_VERSION: u8 = 2;

/// A row could not be encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A value is of another type than its column, or does not fit it.
    #[error("value of column {column} is no {tp:?}")]
    Value {
        /// The column.
        column: String,
        /// Its type.
        tp: SqlType,
    },
    /// There are not as many values as columns.
    #[error("{found} values for {expected} columns")]
    Count {
        /// Columns of the table.
        expected: usize,
        /// Values given.
        found: usize,
    },
    /// A key column's collation has sort keys that this encoder cannot make.
    #[error("sort keys of collation {collation} cannot be written (column {column})")]
    Collation {
        /// The column.
        column: String,
        /// Its collation.
        collation: String,
    },
    /// The table's handle is `_tidb_rowid`, and none was given.
    #[error("table has no clustered key, so the row needs a row id")]
    NoRowId,
    /// The row is larger than its format can hold.
    #[error("row is too large to encode")]
    TooLarge,
}

impl Diagnostic for EncodeError {
    fn code(&self) -> &'static str {
        "TG-CODEC-003"
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Bug
    }
}

/// A row as TiDB would have written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRow {
    /// The handle, as it stands in the key.
    pub handle: Vec<u8>,
    /// The row value, in format v2.
    pub value: Vec<u8>,
}

impl EncodedRow {
    /// The raw record key of the row in a table or partition.
    pub fn key(&self, keyspace: Option<KeyspaceId>, table_id: TableId) -> Vec<u8> {
        let mut key = record_prefix(keyspace, table_id);
        key.extend_from_slice(&self.handle);
        key
    }
}

/// Encodes one row; `values` are in the order of [`crate::meta::TableInfo::columns`], with
/// [`Value::Virtual`] for virtual generated columns. Assumes TiDB's new collations, its default since 6.0.
///
/// # Errors
/// [`EncodeError`]; in particular, clustered text keys need a binary collation.
pub fn encode_row(
    layout: &TableLayout,
    values: &[Value<'_>],
    row_id: Option<i64>,
    checksum: bool,
) -> Result<EncodedRow, EncodeError> {
    let columns = &layout.table().columns;
    if columns.len() != values.len() {
        return Err(EncodeError::Count { expected: columns.len(), found: values.len() });
    }
    let handle = encode_handle(layout, values, row_id)?;
    let mut builder = RowBuilder::default();
    for ((column, value), plan) in columns.iter().zip(values).zip(layout.plans()) {
        let in_key = plan.handle.is_some() && !is_restored(layout, column);
        let implied = value.is_null() && plan.missing == Missing::Null && column.default.is_none();
        if in_key || implied || plan.is_virtual {
            continue;
        }
        builder.column(column, value)?;
    }
    let value = builder.finish(checksum.then_some(handle.as_slice()))?;
    Ok(EncodedRow { handle, value })
}

/// Whether a key column is stored in the value as well, because its key form loses something.
fn is_restored(layout: &TableLayout, column: &ColumnInfo) -> bool {
    let HandleKind::Common(index) = layout.table().handle_kind() else { return false };
    let part = index.columns.iter().find(|part| layout.table().column_at(part.offset) == Some(column));
    let field = &column.field_type;
    let text = (field.tp.is_char() || field.tp.is_blob()) && !field.is_binary();
    let lossy = !field.collate.ends_with("_bin") || field.tp == SqlType::VarChar;
    part.is_some_and(IndexColumn::is_prefix) || (text && lossy && field.collate != "utf8mb4_0900_bin")
}

/// The handle of a row as it stands in its key.
fn encode_handle(
    layout: &TableLayout,
    values: &[Value<'_>],
    row_id: Option<i64>,
) -> Result<Vec<u8>, EncodeError> {
    let columns = &layout.table().columns;
    match layout.table().handle_kind() {
        HandleKind::RowId => row_id.map(|id| int_bytes(id).to_vec()).ok_or(EncodeError::NoRowId),
        HandleKind::Column(index) => {
            let column = columns.get(index).zip(values.get(index));
            match column {
                Some((_, Value::Int(id))) => Ok(int_bytes(*id).to_vec()),
                Some((_, Value::UInt(id))) => Ok(int_bytes(id.cast_signed()).to_vec()),
                Some((column, _)) => Err(mismatch(column)),
                None => Err(EncodeError::NoRowId),
            }
        }
        HandleKind::Common(index) => {
            let mut datums = Vec::new();
            for part in &index.columns {
                let (column, value) =
                    columns.get(part.offset).zip(values.get(part.offset)).ok_or(EncodeError::NoRowId)?;
                encode_key_column(column, part, value, &mut datums)?;
            }
            pad_common_handle(&mut datums);
            Ok(datums)
        }
    }
}

fn mismatch(column: &ColumnInfo) -> EncodeError {
    EncodeError::Value { column: column.name.to_string(), tp: column.field_type.tp }
}

/// Appends the key datum of an indexed column (§2.3), cut to its prefix if it has one.
///
/// # Errors
/// The value does not belong to the column, or its collation has no sort keys here.
pub fn encode_key_column(
    column: &ColumnInfo,
    part: &IndexColumn,
    value: &Value<'_>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let datum = match value {
        Value::Null => Datum::Null,
        Value::Int(int) => Datum::Int(*int),
        Value::UInt(uint) => Datum::UInt(*uint),
        Value::Year(year) => Datum::Int(i64::from(*year)),
        Value::Float(float) => Datum::Float(f64::from(*float)),
        Value::Double(double) => Datum::Float(*double),
        Value::Decimal(number) => {
            let (precision, scale) = decimal_form(&column.field_type).ok_or_else(|| mismatch(column))?;
            return datum::encode_key_decimal(number, precision, scale, out).map_err(|_| mismatch(column));
        }
        Value::Text(text) => Datum::Bytes(Cow::Owned(sort_key(column, cut_chars(text, part.length))?)),
        Value::Bytes(bytes) => Datum::Bytes(Cow::Borrowed(cut_bytes(bytes, part.length))),
        Value::Date(time) | Value::DateTime(time) | Value::Timestamp(time) => Datum::UInt(time.packed()),
        Value::Duration(duration) => Datum::Duration(duration.nanos()),
        Value::Enum { index, .. } => Datum::UInt(*index),
        Value::Set { bits, .. } | Value::Bit { bits, .. } => Datum::UInt(*bits),
        Value::Json(_) | Value::Vector(_) | Value::Virtual => return Err(mismatch(column)),
    };
    datum::encode_key(&datum, out).map_err(|_| mismatch(column))
}

fn cut_chars(text: &str, length: i64) -> &str {
    let cut = usize::try_from(length).ok().and_then(|length| text.char_indices().nth(length));
    cut.map_or(text, |(at, _)| text.split_at(at).0)
}

fn cut_bytes(bytes: &[u8], length: i64) -> &[u8] {
    usize::try_from(length).ok().and_then(|length| bytes.get(..length)).unwrap_or(bytes)
}

/// The sort key of a text: itself for binary collations, without trailing blanks where they pad.
pub(crate) fn sort_key(column: &ColumnInfo, text: &str) -> Result<Vec<u8>, EncodeError> {
    match column.field_type.collate.as_str() {
        "binary" | "utf8mb4_0900_bin" => Ok(text.as_bytes().to_vec()),
        collation if collation.ends_with("_bin") && !collation.starts_with("gb") => {
            Ok(text.trim_end_matches(' ').as_bytes().to_vec())
        }
        collation => {
            Err(EncodeError::Collation { column: column.name.to_string(), collation: collation.to_owned() })
        }
    }
}

fn decimal_form(field: &FieldType) -> Option<(u8, u8)> {
    Some((u8::try_from(field.flen).ok()?, u8::try_from(field.decimal).ok()?))
}

/// Appends a value as a cell of format v2 (§5). `None` when the value is NULL, or not of the type.
pub(crate) fn put_cell(value: &Value<'_>, field: &FieldType, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Null | Value::Virtual => return None,
        Value::Int(int) => put_int(*int, out),
        Value::UInt(uint) => put_uint(*uint, out),
        Value::Year(year) => put_int(i64::from(*year), out),
        Value::Float(float) => out.extend_from_slice(&float_bytes(f64::from(*float))),
        Value::Double(double) => out.extend_from_slice(&float_bytes(*double)),
        Value::Decimal(number) => match decimal_form(field) {
            Some((precision, scale)) => number.encode(precision, scale, out)?,
            None => number.encode_natural(out)?,
        },
        Value::Text(text) => out.extend_from_slice(text.as_bytes()),
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Date(time) | Value::DateTime(time) | Value::Timestamp(time) => put_uint(time.packed(), out),
        Value::Duration(duration) => put_int(duration.nanos(), out),
        Value::Enum { index, .. } => put_uint(*index, out),
        Value::Set { bits, .. } | Value::Bit { bits, .. } => put_uint(*bits, out),
        Value::Json(json) => out.extend_from_slice(json.as_bytes()),
        Value::Vector(vector) => out.extend_from_slice(vector.as_bytes()),
    }
    Some(())
}

/// Appends the smallest of 1, 2, 4 and 8 little-endian bytes that hold `value` (§5.1).
fn put_int(value: i64, out: &mut Vec<u8>) {
    if let Ok(value) = i8::try_from(value) {
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i16::try_from(value) {
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Unsigned as [`put_int`].
fn put_uint(value: u64, out: &mut Vec<u8>) {
    if let Ok(value) = u8::try_from(value) {
        out.push(value);
    } else if let Ok(value) = u16::try_from(value) {
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = u32::try_from(value) {
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// Collects cells and writes a row value of format v2 (§4.1).
#[derive(Debug, Default)]
pub struct RowBuilder {
    cells: Vec<(u32, Vec<u8>)>,
    nulls: Vec<u32>,
}

impl RowBuilder {
    /// Adds a column's value; NULL goes to the list of NULLs.
    ///
    /// # Errors
    /// The value is not of the column's type.
    pub fn column(&mut self, column: &ColumnInfo, value: &Value<'_>) -> Result<(), EncodeError> {
        let id = u32::try_from(column.id.get()).map_err(|_| mismatch(column))?;
        if value.is_null() {
            self.null(id);
            return Ok(());
        }
        let mut cell = Vec::new();
        put_cell(value, &column.field_type, &mut cell).ok_or_else(|| mismatch(column))?;
        self.cell(id, cell);
        Ok(())
    }

    /// Adds a cell that is already encoded.
    pub fn cell(&mut self, id: u32, cell: Vec<u8>) {
        self.cells.push((id, cell));
    }

    /// Adds a column that is NULL.
    pub fn null(&mut self, id: u32) {
        self.nulls.push(id);
    }

    /// Writes the row value; with an encoded handle also a checksum over value and handle.
    ///
    /// # Errors
    /// There are more columns, or more data, than the format can hold.
    pub fn finish(mut self, checksum_of: Option<&[u8]>) -> Result<Vec<u8>, EncodeError> {
        self.cells.sort_by_key(|(id, _)| *id);
        self.nulls.sort_unstable();
        let data_len: usize = self.cells.iter().map(|(_, cell)| cell.len()).sum();
        let ids = self.cells.iter().map(|(id, _)| *id);
        let large = data_len > SMALL_DATA_MAX
            || ids.clone().chain(self.nulls.iter().copied()).any(|id| id > SMALL_ID_MAX);
        let flags = if large { LARGE } else { 0 } | if checksum_of.is_some() { CHECKSUM } else { 0 };
        let count = |len: usize| u16::try_from(len).map_err(|_| EncodeError::TooLarge);

        let mut out =
            Vec::with_capacity(HEADER_LEN + self.cells.len() * 8 + self.nulls.len() * 4 + data_len + 5);
        out.extend_from_slice(&[MARKER, flags]);
        out.extend_from_slice(&count(self.cells.len())?.to_le_bytes());
        out.extend_from_slice(&count(self.nulls.len())?.to_le_bytes());
        for id in ids.chain(self.nulls.iter().copied()) {
            put_sized(id, if large { 4 } else { 1 }, &mut out);
        }
        let mut end = 0;
        for (_, cell) in &self.cells {
            end += cell.len();
            let end = u32::try_from(end).map_err(|_| EncodeError::TooLarge)?;
            put_sized(end, if large { 4 } else { 2 }, &mut out);
        }
        self.cells.iter().for_each(|(_, cell)| out.extend_from_slice(cell));
        if let Some(handle) = checksum_of {
            out.push(CHECKSUM_VERSION);
            let mut hasher = crc32fast::Hasher::new();
            hasher.update(&out);
            hasher.update(handle);
            out.extend_from_slice(&hasher.finalize().to_le_bytes());
        }
        Ok(out)
    }
}

/// Appends the low `len` bytes of `value`, little endian.
fn put_sized(value: u32, len: usize, out: &mut Vec<u8>) {
    out.extend(value.to_le_bytes().iter().take(len));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decimal::Decimal;
    use crate::json::Json;
    use crate::key::{Handle, parse_record_key};
    use crate::testing::{common_key_table, hex, int_key_table, layout, table};
    use crate::time::{Duration, Time};
    use crate::vector::Vector;

    #[test]
    fn rows_of_the_reference_are_written() {
        let builder = |cells: &[(u32, &[u8])], nulls: &[u32]| {
            let mut builder = RowBuilder::default();
            cells.iter().for_each(|(id, cell)| builder.cell(*id, cell.to_vec()));
            nulls.iter().for_each(|id| builder.null(*id));
            builder.finish(None).unwrap()
        };
        assert_eq!(builder(&[], &[]), hex("800000000000"));
        let row = builder(&[(4, b"ab"), (2, &[5])], &[3]);
        assert_eq!(row, hex("80 00 0200 0100 02 04 03 0100 0300 05 6162"));
        let row = builder(&[(256, &[1])], &[2]);
        assert_eq!(row, hex("80 01 0100 0100 00010000 02000000 01000000 01"));
    }

    #[test]
    fn more_than_65535_bytes_of_data_make_a_row_large() {
        let layout = layout(table(&["blob", "blob"]));
        let bytes = |len: usize| Value::Bytes(Cow::Owned(vec![7; len]));
        for (len, flags) in [(65_535, 0), (65_536, LARGE)] {
            let row = encode_row(&layout, &[bytes(len), Value::Null], Some(1), false).unwrap();
            assert_eq!(row.value[1], flags);
            let view = layout.row(Handle::Int(1), &row.value).unwrap();
            assert_eq!(view.column(0), Ok(bytes(len)));
        }
    }

    #[test]
    fn clustered_keys_of_the_reference_are_written() {
        let int = Value::Int(7);
        let decimal = Value::Decimal(Decimal::parse("12.5").unwrap());
        let text = |text: &'static str| Value::Text(Cow::Borrowed(text));
        let cp = layout(common_key_table(&["varchar(20)", "int", "decimal(10,2)"], &[(0, -1), (1, -1)]));
        let row = encode_row(&cp, &[text("abc "), int, decimal], None, false).unwrap();
        assert_eq!(
            row.key(None, TableId(118)),
            hex("748000000000000076 5f72 016162630000000000fa 038000000000000007")
        );
        assert_eq!(row.value, hex("80 00 0200 0000 01 03 0400 0b00 61626320 0a028000000c32"));

        let cdec = layout(common_key_table(&["decimal(20,4)", "char(4)"], &[(0, -1), (1, -1)]));
        let decimal = Value::Decimal(Decimal::parse("-12345.6").unwrap());
        let row = encode_row(&cdec, &[decimal, text("ab")], None, false).unwrap();
        assert_eq!(row.handle, hex("0614047fffffffffffcfc6e88f 016162000000000000f9"));
        assert_eq!(row.value, hex("800000000000"));
    }

    #[test]
    fn the_checksum_of_the_reference_is_written() {
        let layout = layout(table(&["int", "int", "int", "varchar(5)"]));
        let values = [Value::Null, Value::Int(5), Value::Null, Value::Text(Cow::Borrowed("ab"))];
        let row = encode_row(&layout, &values, Some(1), true).unwrap();
        assert_eq!(row.value, hex("800202000000 0204 0100 0300 05 6162 02 4aaa4a5f"));
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let keyed = layout(int_key_table(&["int"]));
        let text = Value::Text(Cow::Borrowed("x"));
        let wrong = encode_row(&keyed, std::slice::from_ref(&text), None, false);
        assert!(matches!(wrong, Err(EncodeError::Value { .. })));
        let count = EncodeError::Count { expected: 1, found: 0 };
        assert_eq!(encode_row(&keyed, &[], None, false), Err(count));
        let plain = layout(table(&["int"]));
        assert_eq!(encode_row(&plain, &[Value::Int(1)], None, false), Err(EncodeError::NoRowId));
        let folded = layout(common_key_table(&["varchar(9) utf8mb4_unicode_ci"], &[(0, -1)]));
        assert!(matches!(encode_row(&folded, &[text], None, false), Err(EncodeError::Collation { .. })));
    }

    prop_compose! {
        /// One value of each type, in the order of `TYPES`.
        fn values()(
            int: i64, uint: u64, small: i8, double in -1e300..1e300_f64, float in -1e30..1e30_f32,
            unscaled in -999_999_999_i64..999_999_999, text in "\\PC{0,20}", bytes: Vec<u8>,
            micros in 0_i64..4_000_000_000_000_000,
            nanos in -3_000_000_000_000_000_i64..3_000_000_000_000_000,
            year in 1901_u16..=2155, index in 1_u64..=3, bits in 0_u64..8, wide: u64,
            elements in proptest::collection::vec(-1e3_f32..1e3, 0..6), nulls: u32,
        ) -> Vec<Value<'static>> {
            let decimal = Decimal::from(unscaled).with_scale(2).unwrap();
            let elems = vec!["a".to_owned(), "b".to_owned(), "c".to_owned()];
            let name = elems[usize::try_from(index).unwrap() - 1].clone();
            let mut values = vec![
                Value::Int(int), Value::UInt(uint), Value::Int(i64::from(small)), Value::Double(double + 0.0),
                Value::Float(float + 0.0), Value::Decimal(decimal), Value::Text(text.clone().into()),
                Value::Bytes(bytes.into()), Value::DateTime(Time::from_unix_micros(micros, 6).unwrap()),
                Value::Duration(Duration::new(nanos, 3)), Value::Year(year),
                Value::Enum { index, name: name.into() }, Value::Set { bits, elems: elems.into() },
                Value::Bit { bits: wide, width: 64 }, Value::Json(Json::from_string(&text)),
                Value::Vector(Vector::from_elements(&elements).unwrap()),
            ];
            for (at, value) in values.iter_mut().enumerate().skip(1) {
                if nulls >> at & 3 == 3 {
                    *value = Value::Null;
                }
            }
            values
        }
    }

    const TYPES: [&str; 16] = [
        "bigint",
        "bigint unsigned",
        "tinyint",
        "double",
        "float",
        "decimal(20,2)",
        "varchar(99)",
        "blob",
        "datetime(6)",
        "time(3)",
        "year",
        "enum(a,b,c)",
        "set(a,b,c)",
        "bit(64)",
        "json",
        "vector",
    ];

    proptest! {
        #[test]
        fn any_row_is_read_as_it_was_written(values in values(), checksum: bool) {
            for layout in [layout(int_key_table(&TYPES)), layout(common_key_table(&TYPES, &[(0, -1)]))] {
                let encoded = encode_row(&layout, &values, None, checksum).unwrap();
                let key = encoded.key(Some(KeyspaceId(7)), TableId(45));
                let parsed = parse_record_key(&key).unwrap();
                let row = layout.row(parsed.handle, &encoded.value).unwrap();
                for (index, value) in values.iter().enumerate() {
                    prop_assert_eq!(&row.column(index).unwrap(), value);
                }
                prop_assert_eq!(row.verify_checksum(&key), Ok(()));
            }
        }
    }
}
