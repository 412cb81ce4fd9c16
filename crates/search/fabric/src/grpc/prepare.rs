//! From a message to a batch that the writer can judge: every rule that needs no lock is checked here, on the
//! caller's own task.

use tidegate_contract::error::{Breach, SfErrorCode};
use tidegate_contract::validate::check_batch;
use tidegate_core::{CommitTs, ResolvedTs};
use tidegate_proto::searchfabric::v1::{
    CollectionTruthMode, MutationBatch, MutationEntry, ProgressMark, RowMutation, RowMutationKind,
    document_id, mutation_entry,
};

use crate::catalog::{Catalog, Generation, Uid, content_of};
use crate::ingest::{Batch, Entry, Progress, Row, RowKind};

/// Checks a batch against the contract and its schema generation.
pub(crate) fn prepare(batch: MutationBatch, catalog: &Catalog) -> Result<(Uid, Batch), Breach> {
    check_batch(&batch)?;
    let missing = |path| Breach::new(SfErrorCode::SfInvalidArgument, path, "is missing");
    let reference = batch.collection.as_ref().ok_or_else(|| missing("collection"))?;
    let collection = catalog.active(reference)?;
    let token = batch.schema_generation_token.as_str();
    let Some((generation, _)) = collection.generation(token) else {
        let detail = "was never issued for this collection";
        return Err(Breach::new(SfErrorCode::SfSchemaGenerationUnknown, "schema_generation_token", detail));
    };
    check_truth(generation)?;
    let stream = batch.stream_identity.ok_or_else(|| missing("stream_identity"))?;
    let continue_on_error = batch.policy.is_some_and(|policy| policy.continue_on_error);
    let mut entries = Vec::with_capacity(batch.entries.len());
    for (index, entry) in batch.entries.into_iter().enumerate() {
        match self::entry(entry, generation) {
            Ok(entry) => entries.push(entry),
            Err(breach) => {
                let breach = breach.within(format_args!("entries[{index}]"));
                if !continue_on_error {
                    return Err(breach);
                }
                entries.push(Entry::Bad(breach));
            }
        }
    }
    let batch = Batch {
        key: batch.meta.map_or_else(String::new, |meta| meta.idempotency_key),
        batch_id: batch.batch_id,
        fingerprint: batch.batch_fingerprint,
        partition: stream.source_partition,
        epoch: stream.source_epoch,
        seq: stream.source_seq,
        schema_version: generation.generation.schema_version,
        continue_on_error,
        entries,
    };
    Ok((collection.uid, batch))
}

fn check_truth(generation: &Generation) -> Result<(), Breach> {
    let mode = generation.definition().map(|definition| definition.truth_mode());
    if mode == Some(CollectionTruthMode::External) {
        return Ok(());
    }
    let detail = "is not fed by change feeds";
    Err(Breach::new(SfErrorCode::SfTruthModeMismatch, "collection", detail))
}

fn entry(entry: MutationEntry, generation: &Generation) -> Result<Entry, Breach> {
    match entry.entry {
        Some(mutation_entry::Entry::RowMutation(row)) => {
            row_of(row, generation).map(Entry::Row).map_err(|breach| breach.within("row_mutation"))
        }
        Some(mutation_entry::Entry::ProgressMark(mark)) => Ok(Entry::Progress(progress(&mark))),
        Some(mutation_entry::Entry::BarrierMark(mark)) => Ok(Entry::Barrier(CommitTs::new(mark.barrier_ts))),
        None => Err(Breach::new(SfErrorCode::SfInvalidArgument, "entry", "is missing")),
    }
}

fn row_of(row: RowMutation, generation: &Generation) -> Result<Row, Breach> {
    generation.rules.check_row(&row, generation.generation.schema_version)?;
    let Some(document_id::IdValue::U64(doc)) = row.doc_id.as_ref().and_then(|id| id.id_value.as_ref()) else {
        return Err(Breach::new(SfErrorCode::SfDocIdInvalid, "doc_id", "is missing"));
    };
    let kind = match row.kind() {
        RowMutationKind::Upsert => RowKind::Upsert,
        RowMutationKind::Patch => RowKind::Patch,
        RowMutationKind::Delete => RowKind::Delete,
        RowMutationKind::Unspecified => {
            return Err(Breach::new(SfErrorCode::SfInvalidArgument, "kind", "must be specified"));
        }
    };
    let (doc, version) = (*doc, CommitTs::new(row.commit_ts));
    let content = match generation.definition() {
        Some(definition) => content_of(definition, row.fields)?,
        None => Default::default(),
    };
    Ok(Row { doc, version, kind, content })
}

fn progress(mark: &ProgressMark) -> Progress {
    let marks = mark.watermarks.iter().map(|w| (w.modality(), ResolvedTs::new(w.applied_ts)));
    Progress { resolved: ResolvedTs::new(mark.resolved_ts), marks: marks.collect() }
}
