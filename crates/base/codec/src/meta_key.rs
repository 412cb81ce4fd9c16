//! Metadata keys: the string, hash and list containers that TiDB lays over plain keys, and what it keeps
//! in them (`reference/tidb-keys-and-rows.md` §3).
//!
//! All keys here are raw and without keyspace prefix; see [`crate::key::with_keyspace`].

use tidegate_core::{JobId, SchemaId, TableId};

use crate::key::KeyError;
use crate::memcomparable::{decode_bytes, encode_bytes, encoded_len, int_bytes, int_from_bytes};
use crate::reader::Reader;

const META: u8 = b'm';
const STRING: u8 = b's';
const HASH: u8 = b'h';
const LIST_META: u8 = b'L';
const LIST: u8 = b'l';

/// A metadata key taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaKey {
    /// A plain value.
    String {
        /// Its name.
        name: Vec<u8>,
    },
    /// One field of a hash.
    Hash {
        /// The hash.
        name: Vec<u8>,
        /// The field.
        field: Vec<u8>,
    },
    /// The bounds of a list.
    ListMeta {
        /// The list.
        name: Vec<u8>,
    },
    /// One element of a list.
    ListItem {
        /// The list.
        name: Vec<u8>,
        /// Its index.
        index: i64,
    },
}

/// What a metadata key holds, for the keys a schema reader needs; all others are [`MetaEntry::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaEntry {
    /// A database: JSON `DBInfo`.
    Database(SchemaId),
    /// A table of a database: JSON `TableInfo`.
    Table(SchemaId, TableId),
    /// The global schema version: decimal text.
    SchemaVersion,
    /// The schema diff of a version: JSON.
    SchemaDiff(i64),
    /// A finished DDL job: JSON.
    HistoryJob(JobId),
    /// The next global id: decimal text.
    NextGlobalId,
    /// Anything else: allocators, policies, flags.
    Other,
}

/// Takes a metadata key apart.
///
/// # Errors
/// [`KeyError::OtherKind`] when it is no metadata key, otherwise what is damaged.
pub fn parse(key: &[u8]) -> Result<MetaKey, KeyError> {
    let other = KeyError::OtherKind { expected: "metadata" };
    let Some((&META, rest)) = key.split_first() else { return Err(other) };
    let (name, rest) = decode_bytes(rest)?;
    let mut reader = Reader::new(rest);
    let truncated = KeyError::Truncated { offset: key.len() };
    let kind = reader.u64_be().ok_or(truncated.clone())?;
    match u8::try_from(kind).map_err(|_| other.clone())? {
        STRING => Ok(MetaKey::String { name }),
        HASH => Ok(MetaKey::Hash { name, field: decode_bytes(reader.rest())?.0 }),
        LIST_META => Ok(MetaKey::ListMeta { name }),
        LIST => Ok(MetaKey::ListItem { name, index: int_from_bytes(reader.array().ok_or(truncated)?) }),
        _ => Err(other),
    }
}

/// What a metadata key holds.
///
/// # Errors
/// As [`parse`].
pub fn classify(key: &[u8]) -> Result<MetaEntry, KeyError> {
    Ok(match parse(key)? {
        MetaKey::String { name } => classify_string(&name),
        MetaKey::Hash { name, field } => classify_hash(&name, &field),
        MetaKey::ListMeta { .. } | MetaKey::ListItem { .. } => MetaEntry::Other,
    })
}

fn classify_string(name: &[u8]) -> MetaEntry {
    match name {
        b"SchemaVersionKey" => MetaEntry::SchemaVersion,
        b"NextGlobalID" => MetaEntry::NextGlobalId,
        _ => number_after(name, b"Diff:").map_or(MetaEntry::Other, MetaEntry::SchemaDiff),
    }
}

fn classify_hash(name: &[u8], field: &[u8]) -> MetaEntry {
    let entry = match name {
        b"DBs" => number_after(field, b"DB:").map(|id| MetaEntry::Database(SchemaId(id))),
        b"DDLJobHistory" => {
            field.as_array().map(|id| MetaEntry::HistoryJob(JobId(u64::from_be_bytes(*id).cast_signed())))
        }
        _ => number_after(name, b"DB:")
            .zip(number_after(field, b"Table:"))
            .map(|(schema, table)| MetaEntry::Table(SchemaId(schema), TableId(table))),
    };
    entry.unwrap_or(MetaEntry::Other)
}

fn number_after(text: &[u8], prefix: &[u8]) -> Option<i64> {
    std::str::from_utf8(text.strip_prefix(prefix)?).ok()?.parse().ok()
}

/// The key part that all keys of one container share.
fn container(name: &[u8], kind: u8, room: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + encoded_len(name.len()) + 8 + room);
    key.push(META);
    encode_bytes(&mut key, name);
    key.extend_from_slice(&u64::from(kind).to_be_bytes());
    key
}

/// The key of a string.
pub fn string(name: &[u8]) -> Vec<u8> {
    container(name, STRING, 0)
}

/// The key of one field of a hash.
pub fn hash(name: &[u8], field: &[u8]) -> Vec<u8> {
    let mut key = container(name, HASH, encoded_len(field.len()));
    encode_bytes(&mut key, field);
    key
}

/// The prefix of all fields of a hash.
pub fn hash_prefix(name: &[u8]) -> Vec<u8> {
    container(name, HASH, 0)
}

/// The key of a list's bounds.
pub fn list_meta(name: &[u8]) -> Vec<u8> {
    container(name, LIST_META, 0)
}

/// The key of one element of a list.
pub fn list_item(name: &[u8], index: i64) -> Vec<u8> {
    let mut key = container(name, LIST, 8);
    key.extend_from_slice(&int_bytes(index));
    key
}

/// The key of a database.
pub fn database(id: SchemaId) -> Vec<u8> {
    hash(b"DBs", format!("DB:{id}").as_bytes())
}

/// The prefix of all databases.
pub fn databases_prefix() -> Vec<u8> {
    hash_prefix(b"DBs")
}

/// The key of a table.
pub fn table(schema: SchemaId, id: TableId) -> Vec<u8> {
    hash(format!("DB:{schema}").as_bytes(), format!("Table:{id}").as_bytes())
}

/// The prefix of all tables of a database; its allocators stand under it too.
pub fn tables_prefix(schema: SchemaId) -> Vec<u8> {
    hash_prefix(format!("DB:{schema}").as_bytes())
}

/// The key of the global schema version.
pub fn schema_version() -> Vec<u8> {
    string(b"SchemaVersionKey")
}

/// The key of the schema diff of a version.
pub fn schema_diff(version: i64) -> Vec<u8> {
    string(format!("Diff:{version}").as_bytes())
}

/// The key of the id that the next database, table, partition or job gets.
pub fn next_global_id() -> Vec<u8> {
    string(b"NextGlobalID")
}

/// The key of a finished DDL job.
pub fn history_job(id: JobId) -> Vec<u8> {
    hash(b"DDLJobHistory", &id.get().to_be_bytes())
}

/// The raw range `[start, end)` that holds all metadata.
pub fn range() -> (Vec<u8>, Vec<u8>) {
    (vec![META], vec![META + 1])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::hex;

    #[test]
    fn keys_of_the_reference_are_built_and_classified() {
        let cases = [
            (
                next_global_id(),
                "6d4e657874476c6f62ff616c494400000000fb0000000000000073",
                MetaEntry::NextGlobalId,
            ),
            (
                schema_version(),
                "6d536368656d615665ff7273696f6e4b6579ff0000000000000000f70000000000000073",
                MetaEntry::SchemaVersion,
            ),
            (schema_diff(57), "6d446966663a353700fe0000000000000073", MetaEntry::SchemaDiff(57)),
            (
                database(SchemaId(2)),
                "6d4442730000000000fa000000000000006844423a3200000000fb",
                MetaEntry::Database(SchemaId(2)),
            ),
            (
                table(SchemaId(2), TableId(104)),
                "6d44423a3200000000fb00000000000000685461626c653a3130ff3400000000000000f8",
                MetaEntry::Table(SchemaId(2), TableId(104)),
            ),
            (
                hash(b"DB:2", b"TID:104"),
                "6d44423a3200000000fb00000000000000685449443a31303400fe",
                MetaEntry::Other,
            ),
            (
                history_job(JobId(131)),
                "6d44444c4a6f624869ff73746f7279000000fc00000000000000680000000000000083ff0000000000000000f7",
                MetaEntry::HistoryJob(JobId(131)),
            ),
            (
                list_meta(b"DDLJobList"),
                "6d44444c4a6f624c69ff7374000000000000f9000000000000004c",
                MetaEntry::Other,
            ),
            (
                list_item(b"DDLJobList", 0),
                "6d44444c4a6f624c69ff7374000000000000f9000000000000006c8000000000000000",
                MetaEntry::Other,
            ),
        ];
        for (key, encoded, entry) in cases {
            assert_eq!(key, hex(encoded));
            assert_eq!(classify(&key), Ok(entry));
        }
        assert_eq!(databases_prefix(), hex("6d4442730000000000fa0000000000000068"));
        assert_eq!(tables_prefix(SchemaId(2)), hex("6d44423a3200000000fb0000000000000068"));
    }

    #[test]
    fn table_keys_are_no_metadata() {
        let key = hex("74800000000000002d5f728000000000000001");
        assert_eq!(parse(&key), Err(KeyError::OtherKind { expected: "metadata" }));
    }

    proptest! {
        #[test]
        fn containers_round_trip(name: Vec<u8>, field: Vec<u8>, index: i64) {
            prop_assert_eq!(parse(&string(&name)), Ok(MetaKey::String { name: name.clone() }));
            prop_assert_eq!(parse(&hash(&name, &field)), Ok(MetaKey::Hash { name: name.clone(), field }));
            prop_assert_eq!(parse(&list_item(&name, index)), Ok(MetaKey::ListItem { name, index }));
        }

        #[test]
        fn any_bytes_parse_or_fail_without_panic(bytes: Vec<u8>) {
            let _ = classify(&[&[META], bytes.as_slice()].concat());
        }
    }
}
