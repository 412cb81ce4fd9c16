//! Table keys: record and index keys, keyspace prefix, spans (`reference/tidb-keys-and-rows.md` §2).
//!
//! A *raw* key is what TiDB writes and what a change event carries. An *encoded* key is the raw key passed
//! once more through the byte encoding of [`crate::memcomparable`]; regions and [`Span`]s use that form.

use std::borrow::Cow;

use tidegate_core::{Diagnostic, ErrorClass, IndexId, KeyspaceId, Span, TableId};

pub use crate::memcomparable::{decode_bytes, encode_bytes};
use crate::memcomparable::{encoded_len, int_bytes, int_from_bytes};

/// First byte of every table key.
const TABLE: u8 = b't';
/// What separates the table id from the handle of a record.
const RECORD: [u8; 2] = *b"_r";
/// What separates the table id from the index id of an index entry.
const INDEX: [u8; 2] = *b"_i";
/// First byte of an API V2 key of the transactional kind.
const KEYSPACE: u8 = b'x';
/// Length of a keyspace prefix: the mode byte and a 24-bit id.
const KEYSPACE_LEN: usize = 4;
/// A common handle shorter than this is padded, so that it is never as long as an integer handle.
const COMMON_HANDLE_LEN_MIN: usize = 9;

/// Ids in `(RESERVED_ID_MAX - 1000, RESERVED_ID_MAX]` belong to system tables (§3.3).
pub const RESERVED_ID_MAX: i64 = 0x0000_ffff_ffff_ffff;
/// `mysql.tidb_ddl_job`, whose rows are the DDL jobs (§3.3).
pub const DDL_JOB_TABLE: TableId = TableId(RESERVED_ID_MAX - 1);
/// `mysql.tidb_ddl_history` (§3.3).
pub const DDL_HISTORY_TABLE: TableId = TableId(RESERVED_ID_MAX - 3);

/// What identifies a row within its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Handle<'a> {
    /// The integer primary key (an unsigned one reinterpreted bit by bit) or the hidden row id.
    Int(i64),
    /// The key datums of a clustered primary key, with padding if they are short.
    Common(&'a [u8]),
}

impl Handle<'_> {
    /// The handle as it stands in a record key.
    pub fn encoded(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Int(id) => Cow::Owned(int_bytes(*id).to_vec()),
            Self::Common(datums) => Cow::Borrowed(datums),
        }
    }
}

/// A record key taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordKey<'a> {
    /// The keyspace, on an API V2 cluster.
    pub keyspace: Option<KeyspaceId>,
    /// The physical table: a partition's id in a partitioned table.
    pub table_id: TableId,
    /// The row within it.
    pub handle: Handle<'a>,
}

/// An index key taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexKey<'a> {
    /// The keyspace, on an API V2 cluster.
    pub keyspace: Option<KeyspaceId>,
    /// The physical table; the logical one for a global index.
    pub table_id: TableId,
    /// The index; temporary indexes of a running ADD INDEX have high bits set (§2.4).
    pub index_id: IndexId,
    /// Key datums of the indexed columns, and the handle for non-unique indexes.
    pub datums: &'a [u8],
}

/// Why bytes are not the key they should be. Offsets count from the start of what was passed in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key is of another kind: an index entry, metadata, or not TiDB's at all.
    #[error("not a {expected} key")]
    OtherKind {
        /// The kind asked for.
        expected: &'static str,
    },
    /// The bytes end too early.
    #[error("key ends early at byte {offset}")]
    Truncated {
        /// Where more bytes were expected.
        offset: usize,
    },
    /// A group marker of the byte encoding is out of range.
    #[error("impossible group marker {marker:#04x} at byte {offset}")]
    BadMarker {
        /// The marker.
        marker: u8,
        /// Where it stands.
        offset: usize,
    },
    /// Padding of the byte encoding is not zero.
    #[error("padding is not zero in the group at byte {offset}")]
    BadPadding {
        /// Where the group begins.
        offset: usize,
    },
    /// A key datum begins with a flag that keys cannot hold.
    #[error("datum flag {flag} is not a key's")]
    BadFlag {
        /// The flag byte.
        flag: u8,
    },
    /// A datum's content is malformed.
    #[error("malformed {what} in key")]
    Malformed {
        /// What was being read.
        what: &'static str,
    },
}

impl Diagnostic for KeyError {
    fn code(&self) -> &'static str {
        "TG-CODEC-001"
    }

    fn class(&self) -> ErrorClass {
        ErrorClass::Corrupt
    }

    fn hint(&self) -> Option<Cow<'static, str>> {
        Some("check that the range subscribed to holds table records only".into())
    }
}

/// Splits an API V2 keyspace prefix off; a classic key comes back whole.
pub fn strip_keyspace(key: &[u8]) -> (Option<KeyspaceId>, &[u8]) {
    match key {
        [KEYSPACE, a, b, c, rest @ ..] if !rest.is_empty() => {
            (Some(KeyspaceId(u32::from_be_bytes([0, *a, *b, *c]))), rest)
        }
        _ => (None, key),
    }
}

/// Parses a raw record key.
///
/// # Errors
/// [`KeyError::OtherKind`] for anything that is no record (index entries, metadata),
/// [`KeyError::Truncated`] when there is no handle.
#[inline]
pub fn parse_record_key(key: &[u8]) -> Result<RecordKey<'_>, KeyError> {
    let (keyspace, key) = strip_keyspace(key);
    let (table_id, rest) = split_table(key, RECORD, "record")?;
    let handle = match rest.as_array::<8>() {
        Some(bytes) => Handle::Int(int_from_bytes(*bytes)),
        None if rest.len() >= COMMON_HANDLE_LEN_MIN => Handle::Common(rest),
        None => return Err(KeyError::Truncated { offset: key.len() }),
    };
    Ok(RecordKey { keyspace, table_id, handle })
}

/// Parses a raw index key.
///
/// # Errors
/// As [`parse_record_key`].
pub fn parse_index_key(key: &[u8]) -> Result<IndexKey<'_>, KeyError> {
    let (keyspace, key) = strip_keyspace(key);
    let (table_id, rest) = split_table(key, INDEX, "index")?;
    let (id, datums) = rest.split_first_chunk().ok_or(KeyError::Truncated { offset: key.len() })?;
    Ok(IndexKey { keyspace, table_id, index_id: IndexId(int_from_bytes(*id)), datums })
}

#[inline]
fn split_table<'a>(
    key: &'a [u8],
    kind: [u8; 2],
    expected: &'static str,
) -> Result<(TableId, &'a [u8]), KeyError> {
    let other = || KeyError::OtherKind { expected };
    let (prefix, rest) = key.split_first_chunk::<11>().ok_or_else(other)?;
    let [first, id @ .., k0, k1] = *prefix;
    if first != TABLE || [k0, k1] != kind {
        return Err(other());
    }
    Ok((TableId(int_from_bytes(id)), rest))
}

/// Starts a raw key: the keyspace prefix, if there is one, with room for `len` more bytes.
fn start(keyspace: Option<KeyspaceId>, len: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(KEYSPACE_LEN + len);
    if let Some(KeyspaceId(id)) = keyspace {
        let [_, id @ ..] = id.to_be_bytes();
        key.push(KEYSPACE);
        key.extend_from_slice(&id);
    }
    key
}

/// `key` with a keyspace prefix in front, if there is one. Metadata keys of API V2 clusters are made so.
pub fn with_keyspace(keyspace: Option<KeyspaceId>, key: &[u8]) -> Vec<u8> {
    let mut out = start(keyspace, key.len());
    out.extend_from_slice(key);
    out
}

/// The raw prefix of all keys of a table, records and index entries.
pub fn table_prefix(keyspace: Option<KeyspaceId>, table_id: TableId) -> Vec<u8> {
    let mut key = start(keyspace, 32);
    key.push(TABLE);
    key.extend_from_slice(&int_bytes(table_id.get()));
    key
}

/// The raw prefix of all records of a table.
pub fn record_prefix(keyspace: Option<KeyspaceId>, table_id: TableId) -> Vec<u8> {
    let mut key = table_prefix(keyspace, table_id);
    key.extend_from_slice(&RECORD);
    key
}

/// The raw key of a row.
pub fn record_key(keyspace: Option<KeyspaceId>, table_id: TableId, handle: &Handle<'_>) -> Vec<u8> {
    let mut key = record_prefix(keyspace, table_id);
    match handle {
        Handle::Int(id) => key.extend_from_slice(&int_bytes(*id)),
        Handle::Common(datums) => key.extend_from_slice(datums),
    }
    key
}

/// The raw prefix of the entries of one index; append key datums for a whole key.
pub fn index_prefix(keyspace: Option<KeyspaceId>, table_id: TableId, index_id: IndexId) -> Vec<u8> {
    let mut key = table_prefix(keyspace, table_id);
    key.extend_from_slice(&INDEX);
    key.extend_from_slice(&int_bytes(index_id.get()));
    key
}

/// Pads the key datums of a clustered primary key to the least length of a common handle (§2.1).
pub fn pad_common_handle(datums: &mut Vec<u8>) {
    if datums.len() < COMMON_HANDLE_LEN_MIN {
        datums.resize(COMMON_HANDLE_LEN_MIN, 0);
    }
}

/// The raw range `[start, end)` that holds all records of a table.
pub fn record_range(keyspace: Option<KeyspaceId>, table_id: TableId) -> (Vec<u8>, Vec<u8>) {
    let begin = record_prefix(keyspace, table_id);
    let mut end = begin.clone();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    (begin, end)
}

/// The encoded span of all records of a table, as a subscription wants it (§2.5).
pub fn table_span(keyspace: Option<KeyspaceId>, table_id: TableId) -> Span {
    let (start, end) = record_range(keyspace, table_id);
    Span::new(to_region_key(&start), to_region_key(&end))
}

/// The encoded span of a whole keyspace: its prefix up to the next keyspace's (§2.6). The last keyspace
/// ends where the next mode byte begins.
pub fn keyspace_span(keyspace: KeyspaceId) -> Span {
    let begin = start(Some(keyspace), 0);
    let next = u32::from_be_bytes([KEYSPACE, 0, 0, 0]) + (keyspace.get() & 0x00ff_ffff) + 1;
    Span::new(to_region_key(&begin), to_region_key(&next.to_be_bytes()))
}

/// A raw key in the form that regions and spans use.
pub fn to_region_key(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(encoded_len(raw.len()));
    encode_bytes(&mut out, raw);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::hex;

    const T45: TableId = TableId(45);

    #[test]
    fn record_keys_of_the_reference_are_built_and_parsed() {
        let common = hex("016162630000000000fa038000000000000007");
        let cases = [
            (T45, Handle::Int(1), "74800000000000002d5f728000000000000001"),
            (T45, Handle::Int(-1), "74800000000000002d5f727fffffffffffffff"),
            (T45, Handle::Int(u64::MAX.cast_signed()), "74800000000000002d5f727fffffffffffffff"),
            (DDL_JOB_TABLE, Handle::Int(131), "748000fffffffffffe5f728000000000000083"),
            (T45, Handle::Common(&common), "74800000000000002d5f72016162630000000000fa038000000000000007"),
        ];
        for (table_id, handle, encoded) in cases {
            let key = record_key(None, table_id, &handle);
            assert_eq!(key, hex(encoded));
            assert_eq!(parse_record_key(&key), Ok(RecordKey { keyspace: None, table_id, handle }));
        }
    }

    #[test]
    fn a_keyspace_prefix_is_kept_apart() {
        let keyspace = Some(KeyspaceId(1));
        let key = record_key(keyspace, T45, &Handle::Int(1));
        assert_eq!(key, hex("7800000174800000000000002d5f728000000000000001"));
        let parsed = RecordKey { keyspace, table_id: T45, handle: Handle::Int(1) };
        assert_eq!(parse_record_key(&key), Ok(parsed));
        let span = table_span(keyspace, T45);
        assert_eq!(span.start, hex("7800000174800000ff000000002d5f7200fe"));
        assert_eq!(keyspace_span(KeyspaceId(1)).end, to_region_key(&hex("78000002")));
        assert_eq!(keyspace_span(KeyspaceId(0x00ff_ffff)).end, to_region_key(&hex("79000000")));
    }

    #[test]
    fn spans_are_encoded_as_the_reference_lists_them() {
        let span = table_span(None, T45);
        assert_eq!(span.start, hex("7480000000000000ff2d5f720000000000fa"));
        assert_eq!(span.end, hex("7480000000000000ff2d5f730000000000fa"));
        let jobs = table_span(None, DDL_JOB_TABLE);
        assert_eq!(jobs.start, hex("748000fffffffffffffe5f720000000000fa"));
        assert_eq!(jobs.end, hex("748000fffffffffffffe5f730000000000fa"));
    }

    #[test]
    fn index_keys_are_told_from_records() {
        let key = hex("74800000000000002d5f698000000000000002038000000000000009038000000000000001");
        let parsed = parse_index_key(&key).unwrap();
        assert_eq!((parsed.table_id, parsed.index_id, parsed.datums.len()), (T45, IndexId(2), 18));
        assert_eq!(parse_record_key(&key), Err(KeyError::OtherKind { expected: "record" }));
        assert!(key.starts_with(&index_prefix(None, T45, IndexId(2))));
        let meta = hex("6d4e657874476c6f62ff616c494400000000fb0000000000000073");
        assert_eq!(parse_record_key(&meta), Err(KeyError::OtherKind { expected: "record" }));
    }

    #[test]
    fn a_record_key_without_a_whole_handle_is_refused() {
        let key = record_key(None, T45, &Handle::Int(1));
        for end in 11..18 {
            assert_eq!(parse_record_key(&key[..end]), Err(KeyError::Truncated { offset: end }));
        }
    }

    #[test]
    fn a_short_common_handle_is_padded_to_nine_bytes() {
        let mut datums = vec![5, 1];
        pad_common_handle(&mut datums);
        assert_eq!(datums, [5, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = parse_record_key(&bytes);
            let _ = parse_index_key(&bytes);
        }

        #[test]
        fn record_keys_round_trip(table: i64, id: i64, keyspace in proptest::option::of(0_u32..1 << 24)) {
            let parsed = RecordKey {
                keyspace: keyspace.map(KeyspaceId),
                table_id: TableId(table),
                handle: Handle::Int(id),
            };
            let key = record_key(parsed.keyspace, parsed.table_id, &parsed.handle);
            prop_assert_eq!(parse_record_key(&key), Ok(parsed));
        }
    }
}
