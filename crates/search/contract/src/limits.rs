//! Every limit of the contract, with its reason. Identifiers count Unicode scalar values, as the
//! specification does (`spec/cdc-adapter.md` §5.3); nothing is ever cut or hashed to fit.

use crate::error::{Breach, SfErrorCode};

/// `RequestMeta.idempotency_key` (`spec/cdc-adapter.md` §5.3).
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 128;
/// `RequestMeta.client_id` (`spec/cdc-adapter.md` §5.3).
pub const CLIENT_ID_CHARS_MAX: usize = 256;
/// `batch_id`, `fence_id`, `source_partition` and `collection_id`: they are parts of keys and log lines.
pub const ID_CHARS_MAX: usize = 128;
/// `namespace`: it is a label in metrics.
pub const NAMESPACE_CHARS_MAX: usize = 64;
/// A collection's name: database and table name of 64 characters each, a dot, and room.
pub const NAME_CHARS_MAX: usize = 256;
/// A field's name: MySQL's limit for a column name.
pub const FIELD_NAME_CHARS_MAX: usize = 64;
/// Fields of a collection: a table of TiDB has at most 1,017 columns by default.
pub const FIELDS_MAX: usize = 1_024;
/// Source partitions of a collection: a table of TiDB has at most 8,192 partitions.
pub const SOURCE_PARTITIONS_MAX: usize = 8_192;
/// Entries of a batch: what is applied as a whole must fit into memory several times over.
pub const BATCH_ENTRIES_MAX: usize = 10_000;
/// Encoded bytes of a batch: a TiDB row may have 6 MiB; one such row and its frame must fit.
pub const BATCH_BYTES_MAX: usize = 8 << 20;
/// Nesting of JSON values (`spec/cdc-adapter.md` §4.3); a scalar has depth 0.
pub const JSON_DEPTH_MAX: usize = 16;
/// Dimensions of a vector: TiDB's own limit.
pub const VECTOR_DIMENSIONS_MAX: u32 = 16_383;

/// Checks that `id` has between 1 and `chars_max` Unicode scalar values.
pub(crate) fn check_id(id: &str, path: &str, chars_max: usize) -> Result<(), Breach> {
    if id.is_empty() {
        return Err(Breach::new(SfErrorCode::SfInvalidArgument, path, "must not be empty"));
    }
    check_len(id, path, chars_max)
}

/// Checks that `id` has at most `chars_max` Unicode scalar values.
pub(crate) fn check_len(id: &str, path: &str, chars_max: usize) -> Result<(), Breach> {
    // A string never has more characters than bytes, so short ones are not counted.
    if id.len() <= chars_max {
        return Ok(());
    }
    let chars = id.chars().count();
    if chars > chars_max {
        let detail = format!("has {chars} characters, at most {chars_max} are allowed");
        return Err(Breach::new(SfErrorCode::SfLimitExceeded, path, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_measured_in_characters_not_bytes() {
        let key = "鍵".repeat(IDEMPOTENCY_KEY_CHARS_MAX);
        assert_eq!(key.len(), 384);
        assert_eq!(check_id(&key, "k", IDEMPOTENCY_KEY_CHARS_MAX), Ok(()));
        let long = check_id(&(key + "x"), "k", IDEMPOTENCY_KEY_CHARS_MAX).expect_err("129 characters");
        assert_eq!(long.code(), SfErrorCode::SfLimitExceeded);
        let empty = check_id("", "k", 1).expect_err("empty");
        assert_eq!(empty.code(), SfErrorCode::SfInvalidArgument);
    }
}
