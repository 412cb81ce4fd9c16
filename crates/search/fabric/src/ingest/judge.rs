//! What becomes of a batch: the one decision that ingestion makes, free of I/O.

use tidegate_contract::error::{Breach, SfErrorCode};

use super::apply::{Applied, Documents, apply};
use super::batch::{Batch, Entry};
use super::partition::{Partition, Refusal};
use crate::catalog::Collection;

/// A batch that is not refused.
#[derive(Clone, Debug)]
pub(crate) enum Judged {
    /// It was applied before: its receipt is repeated, and nothing changes (I13).
    Repeated,
    /// It moves its partition on and changes documents.
    Accepted {
        /// The partition after it.
        partition: Box<Partition>,
        /// What it changes.
        applied: Applied,
    },
}

/// A batch that changes nothing.
#[derive(Debug)]
pub(crate) enum Unjudged<E> {
    /// It breaks a rule.
    Refused(Box<Refusal>),
    /// A lookup failed; nothing is known about the batch.
    Failed(E),
}

/// Judges a batch against its collection. `receipt` is the fingerprint under which its idempotency key is
/// known.
pub(crate) fn judge<D: Documents>(
    collection: &Collection,
    batch: &Batch,
    receipt: Option<&str>,
    documents: &D,
) -> Result<Judged, Unjudged<D::Error>> {
    match receipt {
        Some(known) if known == batch.fingerprint => return Ok(Judged::Repeated),
        Some(_) => {
            let detail = "was used before for a batch with other content";
            return Err(breach(SfErrorCode::SfIdempotencyConflict, "meta.idempotency_key", detail).into());
        }
        None => {}
    }
    let Admitted { partition, ignored } = admit(collection, batch)?;
    let applied = if ignored { ignore(batch) } else { apply(batch, partition, documents)? };
    let mut partition = Box::new(partition.clone());
    partition.advance(batch);
    partition.rows_applied += applied.rows_applied;
    Ok(Judged::Accepted { partition, applied })
}

/// A batch that continues its partition's stream.
struct Admitted<'a> {
    partition: &'a Partition,
    /// The partition is retired, and the batch lies before that: it is acknowledged and changes nothing.
    ignored: bool,
}

/// Whether a batch is admitted; rules are checked in the order in which a producer can mend a breach.
fn admit<'a>(collection: &'a Collection, batch: &Batch) -> Result<Admitted<'a>, Refusal> {
    if let Some(dropped) = &collection.dropped {
        let detail = format!("was dropped at {}", dropped.at);
        return Err(breach(SfErrorCode::SfCollectionDropped, "collection", detail).into());
    }
    let path = "stream_identity.source_partition";
    let Some(partition) = collection.partitions.get(&batch.partition) else {
        return Err(breach(SfErrorCode::SfPartitionUnknown, path, "does not feed this collection").into());
    };
    let versions = &collection.generations;
    let position = versions.iter().position(|g| g.generation.schema_version == batch.schema_version);
    let generation = position.and_then(|at| versions.get(at));
    let Some((position, generation)) = position.zip(generation) else {
        let path = "schema_generation_token";
        return Err(breach(SfErrorCode::SfSchemaGenerationUnknown, path, "was never issued").into());
    };
    partition.admit(batch, generation.ddl_commit_ts())?;
    let largest = batch.largest_ts();
    let ended = versions.get(position + 1).map(|next| next.ddl_commit_ts());
    if let Some(ended) = ended.filter(|ended| largest > *ended) {
        let detail = format!("ended at {ended}, the batch reaches {largest}");
        let path = "schema_generation_token";
        let breach = breach(SfErrorCode::SfSchemaGenerationInvalidated, path, detail);
        return Err(Refusal { invalidated_at: Some(ended), ..Refusal::at(partition, breach) });
    }
    match partition.retired {
        Some((at, _)) if largest > at => {
            let breach = breach(SfErrorCode::SfPartitionUnknown, path, format!("was retired at {at}"));
            Err(Refusal::at(partition, breach))
        }
        retired => Ok(Admitted { partition, ignored: retired.is_some() }),
    }
}

/// What a batch of a retired partition does: nothing.
fn ignore(batch: &Batch) -> Applied {
    let rows = batch.entries.iter().filter(|entry| matches!(entry, Entry::Row(_))).count();
    Applied { rows_superseded: u64::try_from(rows).unwrap_or(u64::MAX), ..Applied::default() }
}

fn breach(code: SfErrorCode, path: &str, detail: impl Into<std::borrow::Cow<'static, str>>) -> Breach {
    Breach::new(code, path, detail)
}

impl<E> From<Refusal> for Unjudged<E> {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl<E> From<Breach> for Unjudged<E> {
    fn from(breach: Breach) -> Self {
        Refusal::from(breach).into()
    }
}
