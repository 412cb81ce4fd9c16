//! The form of requests: what can be checked without knowing any collection.

use prost::Message;
use tidegate_proto::searchfabric::v1::{
    BarrierMark, ClientKind, CollectionRef, DropCollectionRequest, MutationBatch, MutationEntry,
    PutCollectionSchemaRequest, RequestMeta, RowMutation, RowMutationKind, SchemaFence, SchemaScope,
    SchemaUpdatePolicy, StreamIdentity, mutation_entry,
};

use crate::error::{Breach, SfErrorCode};
use crate::fingerprint::{Fingerprint, batch_fingerprint};
use crate::limits::{
    BATCH_BYTES_MAX, BATCH_ENTRIES_MAX, CLIENT_ID_CHARS_MAX, ID_CHARS_MAX, IDEMPOTENCY_KEY_CHARS_MAX,
    NAMESPACE_CHARS_MAX, check_id, check_len,
};
use crate::schema::{INITIAL_GENERATION, check_definition};

fn invalid(path: &str, detail: impl Into<std::borrow::Cow<'static, str>>) -> Breach {
    Breach::new(SfErrorCode::SfInvalidArgument, path, detail)
}

fn required<'a, T>(part: Option<&'a T>, path: &str) -> Result<&'a T, Breach> {
    part.ok_or_else(|| invalid(path, "is missing"))
}

/// Checks the form of a batch, that its fingerprint is that of its content, and that it comes from a change
/// feed. Returns the fingerprint.
///
/// # Errors
/// The first rule broken, with its path.
pub fn check_batch(batch: &MutationBatch) -> Result<Fingerprint, Breach> {
    check_meta(batch.meta.as_ref(), ClientKind::TidbCdcAdapter)?;
    check_collection(batch.collection.as_ref(), "collection")?;
    let stream = required(batch.stream_identity.as_ref(), "stream_identity")?;
    check_stream(stream).map_err(|e| e.within("stream_identity"))?;
    check_id(&batch.batch_id, "batch_id", ID_CHARS_MAX)?;
    check_id(&batch.schema_generation_token, "schema_generation_token", ID_CHARS_MAX)?;
    check_len(&batch.resume_token, "resume_token", ID_CHARS_MAX)?;
    check_size(batch)?;
    check_entries(&batch.entries)?;
    let claimed = Fingerprint::parse(&batch.batch_fingerprint, "batch_fingerprint")?;
    let actual = batch_fingerprint(batch);
    if claimed != actual {
        let detail = format!("is not that of the content, which is {actual}");
        return Err(Breach::new(SfErrorCode::SfFingerprintMismatch, "batch_fingerprint", detail));
    }
    Ok(actual)
}

fn check_size(batch: &MutationBatch) -> Result<(), Breach> {
    let (entries, bytes) = (batch.entries.len(), batch.encoded_len());
    let too_many = |detail: String| Err(Breach::new(SfErrorCode::SfLimitExceeded, "entries", detail));
    if entries == 0 {
        return Err(invalid("entries", "must not be empty"));
    }
    if entries > BATCH_ENTRIES_MAX {
        return too_many(format!("has {entries} entries, at most {BATCH_ENTRIES_MAX} are allowed"));
    }
    if bytes > BATCH_BYTES_MAX {
        return too_many(format!("make the batch {bytes} bytes, at most {BATCH_BYTES_MAX} are allowed"));
    }
    Ok(())
}

fn check_stream(stream: &StreamIdentity) -> Result<(), Breach> {
    check_id(&stream.source_partition, "source_partition", ID_CHARS_MAX)?;
    if stream.source_epoch == 0 {
        return Err(invalid("source_epoch", "must not be 0"));
    }
    if stream.source_seq == 0 {
        return Err(invalid("source_seq", "must not be 0"));
    }
    Ok(())
}

fn check_entries(entries: &[MutationEntry]) -> Result<(), Breach> {
    let mut cohort = None;
    for (i, entry) in entries.iter().enumerate() {
        check_entry(entry, &mut cohort).map_err(|e| e.within(format_args!("entries[{i}]")))?;
    }
    Ok(())
}

fn check_entry(entry: &MutationEntry, cohort: &mut Option<u32>) -> Result<(), Breach> {
    match required(entry.entry.as_ref(), "entry")? {
        mutation_entry::Entry::RowMutation(row) => {
            check_row(row, cohort).map_err(|e| e.within("row_mutation"))
        }
        mutation_entry::Entry::ProgressMark(mark) if mark.resolved_ts == 0 => {
            Err(invalid("progress_mark.resolved_ts", "must not be 0"))
        }
        mutation_entry::Entry::ProgressMark(_) => Ok(()),
        mutation_entry::Entry::BarrierMark(mark) => check_barrier(mark).map_err(|e| e.within("barrier_mark")),
    }
}

fn check_barrier(mark: &BarrierMark) -> Result<(), Breach> {
    if mark.barrier_ts == 0 {
        return Err(invalid("barrier_ts", "must not be 0"));
    }
    check_id(&mark.fence_id, "fence_id", ID_CHARS_MAX)
}

/// `cohort` is the schema version of the data-bearing rows before; all of a batch share one
/// (`spec/cdc-adapter.md` §5.3).
fn check_row(row: &RowMutation, cohort: &mut Option<u32>) -> Result<(), Breach> {
    if row.commit_ts == 0 {
        return Err(invalid("commit_ts", "must not be 0"));
    }
    if row.doc_id.as_ref().and_then(|id| id.id_value.as_ref()).is_none() {
        return Err(Breach::new(SfErrorCode::SfDocIdInvalid, "doc_id", "is missing"));
    }
    match row.kind() {
        RowMutationKind::Unspecified => Err(invalid("kind", "must be specified")),
        RowMutationKind::Delete if !row.fields.is_empty() => {
            Err(invalid("fields", "must be empty in a delete"))
        }
        RowMutationKind::Delete if row.schema_version.is_some() => {
            Err(invalid("schema_version", "must be absent in a delete"))
        }
        RowMutationKind::Delete => Ok(()),
        RowMutationKind::Upsert | RowMutationKind::Patch => check_cohort(row.schema_version, cohort),
    }
}

fn check_cohort(schema_version: Option<u32>, cohort: &mut Option<u32>) -> Result<(), Breach> {
    let Some(version) = schema_version.filter(|v| *v > 0) else {
        return Err(invalid("schema_version", "is required and above 0"));
    };
    let first = *cohort.get_or_insert(version);
    if version != first {
        let detail = format!("is {version}, but rows before it in the batch have {first}");
        return Err(Breach::new(SfErrorCode::SfSchemaVersionMismatch, "schema_version", detail));
    }
    Ok(())
}

/// Checks the form of a schema change, including its definition.
///
/// # Errors
/// The first rule broken, with its path.
pub fn check_put_schema(request: &PutCollectionSchemaRequest) -> Result<(), Breach> {
    check_meta(request.meta.as_ref(), ClientKind::TidbDdlAdapter)?;
    check_scope(request.scope.as_ref())?;
    let fence = check_fence(request.fence.as_ref())?;
    if fence.expected_prev_schema_version.checked_add(1) != Some(request.schema_version) {
        return Err(invalid("schema_version", "must be fence.expected_prev_schema_version + 1"));
    }
    let first = request.schema_version == 1;
    if first != (fence.schema_generation_token == INITIAL_GENERATION) {
        let detail = "must be `__initial__` for schema version 1 and only there";
        return Err(invalid("fence.schema_generation_token", detail));
    }
    let initial = request.update_policy() == SchemaUpdatePolicy::InitialCreation;
    if first != initial || request.update_policy() == SchemaUpdatePolicy::Unspecified {
        let detail = "must be specified, and be initial creation for schema version 1 and only there";
        return Err(Breach::new(SfErrorCode::SfUpdatePolicyMismatch, "update_policy", detail));
    }
    let definition = required(request.definition.as_ref(), "definition")?;
    check_definition(definition).map_err(|e| e.within("definition"))
}

/// Checks the form of the end of a collection.
///
/// # Errors
/// The first rule broken, with its path.
pub fn check_drop(request: &DropCollectionRequest) -> Result<(), Breach> {
    check_meta(request.meta.as_ref(), ClientKind::TidbDdlAdapter)?;
    check_scope(request.scope.as_ref())?;
    check_fence(request.fence.as_ref()).map(|_| ())
}

fn check_scope(scope: Option<&SchemaScope>) -> Result<(), Breach> {
    let scope = required(scope, "scope")?;
    check_collection(scope.collection.as_ref(), "scope.collection")?;
    if scope.ddl_commit_ts == 0 {
        return Err(invalid("scope.ddl_commit_ts", "must not be 0"));
    }
    Ok(())
}

fn check_fence(fence: Option<&SchemaFence>) -> Result<&SchemaFence, Breach> {
    let fence = required(fence, "fence")?;
    check_id(&fence.schema_generation_token, "fence.schema_generation_token", ID_CHARS_MAX)?;
    if !fence.enforce_monotonic_apply {
        return Err(invalid("fence.enforce_monotonic_apply", "must be true"));
    }
    Ok(fence)
}

/// Checks who calls: every identity within its limits, and the role `kind`.
///
/// # Errors
/// `SF_INVALID_ARGUMENT`, `SF_LIMIT_EXCEEDED`, or `SF_PERMISSION_DENIED` for another role.
pub fn check_meta(meta: Option<&RequestMeta>, kind: ClientKind) -> Result<(), Breach> {
    let meta = required(meta, "meta")?;
    check_id(&meta.client_id, "meta.client_id", CLIENT_ID_CHARS_MAX)?;
    check_id(&meta.idempotency_key, "meta.idempotency_key", IDEMPOTENCY_KEY_CHARS_MAX)?;
    if meta.client_kind() != kind {
        let detail = format!("must be {}", kind.as_str_name());
        return Err(Breach::new(SfErrorCode::SfPermissionDenied, "meta.client_kind", detail));
    }
    Ok(())
}

/// Checks that a collection is named completely.
///
/// # Errors
/// `SF_INVALID_ARGUMENT` or `SF_LIMIT_EXCEEDED`.
pub fn check_collection(collection: Option<&CollectionRef>, path: &str) -> Result<(), Breach> {
    let collection = required(collection, path)?;
    check_id(&collection.namespace, "namespace", NAMESPACE_CHARS_MAX)
        .and_then(|()| check_id(&collection.collection_id, "collection_id", ID_CHARS_MAX))
        .map_err(|e| e.within(path))
}

#[cfg(test)]
mod tests {
    use tidegate_proto::searchfabric::v1::{DocumentId, FieldData, ProgressMark, document_id};

    use super::*;
    use crate::schema::fixture::definition;

    fn row(kind: RowMutationKind, schema_version: Option<u32>) -> RowMutation {
        RowMutation {
            kind: kind.into(),
            doc_id: Some(DocumentId { id_value: Some(document_id::IdValue::U64(1)) }),
            commit_ts: 20,
            schema_version,
            ..RowMutation::default()
        }
    }

    fn entry(entry: mutation_entry::Entry) -> MutationEntry {
        MutationEntry { entry: Some(entry) }
    }

    fn batch() -> MutationBatch {
        let mark = ProgressMark { resolved_ts: 30, watermarks: vec![] };
        MutationBatch {
            meta: Some(RequestMeta {
                client_id: "adapter-1".to_owned(),
                client_kind: ClientKind::TidbCdcAdapter.into(),
                idempotency_key: "k".to_owned(),
            }),
            collection: Some(CollectionRef {
                namespace: "default".to_owned(),
                collection_id: "table-7".to_owned(),
            }),
            stream_identity: Some(StreamIdentity {
                source_partition: "table:7".to_owned(),
                source_epoch: 1,
                source_seq: 1,
            }),
            batch_id: "b".to_owned(),
            schema_generation_token: "g".to_owned(),
            entries: vec![
                entry(mutation_entry::Entry::RowMutation(row(RowMutationKind::Upsert, Some(1)))),
                entry(mutation_entry::Entry::RowMutation(row(RowMutationKind::Delete, None))),
                entry(mutation_entry::Entry::ProgressMark(mark)),
            ],
            ..MutationBatch::default()
        }
    }

    fn sealed(mut batch: MutationBatch) -> MutationBatch {
        batch.batch_fingerprint = batch_fingerprint(&batch).to_string();
        batch
    }

    fn check(change: impl FnOnce(&mut MutationBatch), code: SfErrorCode, path: &str) {
        let mut changed = batch();
        change(&mut changed);
        let breach = check_batch(&sealed(changed)).expect_err("a broken rule");
        assert_eq!((breach.code(), breach.path()), (code, path), "{breach}");
    }

    fn row_of(batch: &mut MutationBatch, i: usize) -> &mut RowMutation {
        match &mut batch.entries[i].entry {
            Some(mutation_entry::Entry::RowMutation(row)) => row,
            other => panic!("entry {i} is no row: {other:?}"),
        }
    }

    #[test]
    fn a_sealed_batch_passes_with_its_fingerprint() {
        let sealed = sealed(batch());
        assert_eq!(check_batch(&sealed).map(|f| f.to_string()), Ok(sealed.batch_fingerprint));
    }

    #[test]
    fn identities_are_present_and_within_their_limits() {
        use SfErrorCode as E;
        check(|b| b.meta = None, E::SfInvalidArgument, "meta");
        check(|b| b.collection = None, E::SfInvalidArgument, "collection");
        check(|b| b.stream_identity = None, E::SfInvalidArgument, "stream_identity");
        check(|b| b.batch_id = "x".repeat(129), E::SfLimitExceeded, "batch_id");
        let meta = |b: &mut MutationBatch, f: fn(&mut RequestMeta)| f(b.meta.as_mut().expect("set"));
        check(|b| meta(b, |m| m.client_id.clear()), E::SfInvalidArgument, "meta.client_id");
        check(|b| meta(b, |m| m.client_id = "ä".repeat(257)), E::SfLimitExceeded, "meta.client_id");
        let long = |m: &mut RequestMeta| m.idempotency_key = "k".repeat(129);
        check(|b| meta(b, long), E::SfLimitExceeded, "meta.idempotency_key");
        let other = |m: &mut RequestMeta| m.client_kind = ClientKind::Query.into();
        check(|b| meta(b, other), E::SfPermissionDenied, "meta.client_kind");
        let stream =
            |b: &mut MutationBatch, f: fn(&mut StreamIdentity)| f(b.stream_identity.as_mut().expect("set"));
        check(|b| stream(b, |s| s.source_epoch = 0), E::SfInvalidArgument, "stream_identity.source_epoch");
        check(|b| stream(b, |s| s.source_seq = 0), E::SfInvalidArgument, "stream_identity.source_seq");
    }

    #[test]
    fn a_batch_has_entries_but_not_too_many() {
        check(|b| b.entries.clear(), SfErrorCode::SfInvalidArgument, "entries");
        let fill = |b: &mut MutationBatch| b.entries = vec![b.entries[1].clone(); BATCH_ENTRIES_MAX + 1];
        check(fill, SfErrorCode::SfLimitExceeded, "entries");
    }

    #[test]
    fn rows_say_what_they_are() {
        use SfErrorCode as E;
        check(|b| row_of(b, 0).commit_ts = 0, E::SfInvalidArgument, "entries[0].row_mutation.commit_ts");
        check(|b| row_of(b, 0).kind = 0, E::SfInvalidArgument, "entries[0].row_mutation.kind");
        check(|b| row_of(b, 0).doc_id = None, E::SfDocIdInvalid, "entries[0].row_mutation.doc_id");
        let missing = |b: &mut MutationBatch| row_of(b, 0).schema_version = None;
        check(missing, E::SfInvalidArgument, "entries[0].row_mutation.schema_version");
        let with_fields = |b: &mut MutationBatch| {
            row_of(b, 1).fields.insert("x".to_owned(), FieldData::default());
        };
        check(with_fields, E::SfInvalidArgument, "entries[1].row_mutation.fields");
        check(|b| b.entries[2].entry = None, E::SfInvalidArgument, "entries[2].entry");
    }

    #[test]
    fn data_bearing_rows_share_one_schema_version() {
        let mixed = |b: &mut MutationBatch| {
            *row_of(b, 1) = row(RowMutationKind::Patch, Some(2));
        };
        check(mixed, SfErrorCode::SfSchemaVersionMismatch, "entries[1].row_mutation.schema_version");
    }

    #[test]
    fn the_fingerprint_is_well_formed_and_that_of_the_content() {
        let code = |b: &MutationBatch| check_batch(b).map_err(|e| e.code()).map(|_| ());
        let good = sealed(batch());
        let mut other_content = good.clone();
        row_of(&mut other_content, 1).doc_id =
            Some(DocumentId { id_value: Some(document_id::IdValue::U64(2)) });
        assert_eq!(code(&other_content), Err(SfErrorCode::SfFingerprintMismatch));
        for malformed in [
            good.batch_fingerprint.to_uppercase() + "",
            format!("0x{}", good.batch_fingerprint),
            good.batch_fingerprint[1..].to_owned(),
        ] {
            let batch = MutationBatch { batch_fingerprint: malformed, ..good.clone() };
            assert_eq!(code(&batch), Err(SfErrorCode::SfChecksumMalformed));
        }
    }

    #[test]
    fn what_a_retry_may_change_does_not_change_the_fingerprint() {
        let good = sealed(batch());
        let mut retried = good.clone();
        retried.meta.as_mut().expect("set").idempotency_key = "other".to_owned();
        let stream = retried.stream_identity.as_mut().expect("set");
        (stream.source_epoch, stream.source_seq) = (7, 900);
        row_of(&mut retried, 0).commit_ts = 21;
        retried.resume_token = "token".to_owned();
        assert_eq!(check_batch(&retried).map(|f| f.to_string()), Ok(good.batch_fingerprint));
    }

    fn put() -> PutCollectionSchemaRequest {
        let mut meta = batch().meta;
        meta.as_mut().expect("set").client_kind = ClientKind::TidbDdlAdapter.into();
        PutCollectionSchemaRequest {
            meta,
            scope: Some(SchemaScope { collection: batch().collection, ddl_commit_ts: 10 }),
            schema_version: 1,
            fence: Some(SchemaFence {
                expected_prev_schema_version: 0,
                schema_generation_token: INITIAL_GENERATION.to_owned(),
                enforce_monotonic_apply: true,
            }),
            definition: Some(definition()),
            update_policy: SchemaUpdatePolicy::InitialCreation.into(),
        }
    }

    fn check_put(change: impl FnOnce(&mut PutCollectionSchemaRequest), code: SfErrorCode, path: &str) {
        let mut changed = put();
        change(&mut changed);
        let breach = check_put_schema(&changed).expect_err("a broken rule");
        assert_eq!((breach.code(), breach.path()), (code, path), "{breach}");
    }

    #[test]
    fn the_first_generation_uses_the_whole_zero_state() {
        use SfErrorCode as E;
        assert_eq!(check_put_schema(&put()), Ok(()));
        let fence =
            |r: &mut PutCollectionSchemaRequest, f: fn(&mut SchemaFence)| f(r.fence.as_mut().expect("set"));
        let token = "fence.schema_generation_token";
        check_put(|r| fence(r, |f| f.schema_generation_token = "g".to_owned()), E::SfInvalidArgument, token);
        check_put(
            |r| fence(r, |f| f.expected_prev_schema_version = 1),
            E::SfInvalidArgument,
            "schema_version",
        );
        let monotonic = "fence.enforce_monotonic_apply";
        check_put(|r| fence(r, |f| f.enforce_monotonic_apply = false), E::SfInvalidArgument, monotonic);
        check_put(|r| r.update_policy = 0, E::SfUpdatePolicyMismatch, "update_policy");
        let additive = SchemaUpdatePolicy::Additive.into();
        check_put(|r| r.update_policy = additive, E::SfUpdatePolicyMismatch, "update_policy");
        check_put(|r| r.definition = None, E::SfInvalidArgument, "definition");
        let nameless = |r: &mut PutCollectionSchemaRequest| r.definition.as_mut().expect("set").name.clear();
        check_put(nameless, E::SfInvalidArgument, "definition.name");
        let scope = |r: &mut PutCollectionSchemaRequest| r.scope.as_mut().expect("set").ddl_commit_ts = 0;
        check_put(scope, E::SfInvalidArgument, "scope.ddl_commit_ts");
    }
}
