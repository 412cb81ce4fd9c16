//! What the store holds of a document: its newest version, or the tombstone of its delete.

use tidegate_core::CommitTs;

/// Bytes before the content: a kind, the version, the partition's number, the schema version.
const HEAD_BYTES: usize = 17;
const LIVE: u8 = 1;
const TOMBSTONE: u8 = 2;

/// The newest known version of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its commit timestamp.
    pub(crate) version: CommitTs,
    /// The number of the partition that wrote it, within its collection.
    pub(crate) partition: u32,
    /// The schema version its content was written under; 0 for a tombstone.
    pub(crate) schema_version: u32,
    /// The encoded [`crate::content::Content`]; `None` for a tombstone.
    pub(crate) content: Option<Vec<u8>>,
}

impl Record {
    /// Whether the document exists.
    pub(crate) fn is_live(&self) -> bool {
        self.content.is_some()
    }

    /// The stored form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let content = self.content.as_deref().unwrap_or_default();
        let mut bytes = Vec::with_capacity(HEAD_BYTES + content.len());
        bytes.push(if self.is_live() { LIVE } else { TOMBSTONE });
        bytes.extend_from_slice(&self.version.get().to_be_bytes());
        bytes.extend_from_slice(&self.partition.to_be_bytes());
        bytes.extend_from_slice(&self.schema_version.to_be_bytes());
        bytes.extend_from_slice(content);
        bytes
    }

    /// Reads the stored form; `None` if it is not one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (partition, rest) = rest.split_first_chunk()?;
        let (schema_version, content) = rest.split_first_chunk()?;
        let content = match *kind {
            LIVE => Some(content.to_vec()),
            TOMBSTONE if content.is_empty() => None,
            _ => return None,
        };
        Some(Self {
            version: CommitTs::new(u64::from_be_bytes(*version)),
            partition: u32::from_be_bytes(*partition),
            schema_version: u32::from_be_bytes(*schema_version),
            content,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_record_reads_back_as_it_was_written(
            version: u64, partition: u32, schema_version: u32, content: Option<Vec<u8>>,
        ) {
            let record = Record { version: CommitTs::new(version), partition, schema_version, content };
            prop_assert_eq!(Record::decode(&record.encode()), Some(record));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            if let Some(record) = Record::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }
}
