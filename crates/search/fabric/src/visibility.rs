//! How fresh and how complete a collection is, derived from its partitions alone.
//!
//! *Invariant:* `safe_ts` is the minimum over every partition that feeds the collection and every modality it
//! has (I12); nobody can set it.

use tidegate_core::ResolvedTs;
use tidegate_invariants::check_invariant;
use tidegate_proto::searchfabric::v1::{Modality, field_schema};

use crate::catalog::Collection;
use crate::query::response::{Freshness, Incomplete};

/// The modalities of a collection: text and scalars always, vectors where it has a vector field.
pub(crate) fn modalities(collection: &Collection) -> Vec<Modality> {
    let fields = &collection.lineage.definition.fields;
    let vectors = fields.iter().any(|field| matches!(field.r#type, Some(field_schema::Type::Vector(_))));
    if vectors { vec![Modality::FullText, Modality::Vector] } else { vec![Modality::FullText] }
}

/// Up to where a modality holds everything; zero while no partition feeds the collection.
pub(crate) fn applied(collection: &Collection, modality: Modality) -> ResolvedTs {
    collection.feeding().map(|partition| partition.applied(modality)).min().unwrap_or_default()
}

/// Up to where every answer holds everything.
pub(crate) fn safe_ts(collection: &Collection) -> ResolvedTs {
    let modalities = modalities(collection);
    let safe = modalities.iter().map(|modality| applied(collection, *modality)).min().unwrap_or_default();
    let ahead = collection
        .feeding()
        .find(|partition| modalities.iter().any(|modality| safe > partition.applied(*modality)));
    check_invariant!(I12, ahead.is_none(), "collection {} at {safe}", collection.uid.0);
    safe
}

/// Why a collection may lack something that its `safe_ts` claims.
fn incomplete(collection: &Collection, poisoned: bool) -> Vec<Incomplete> {
    let reason = |reason: &str, partition: Option<&str>, rows: u64| Incomplete {
        reason: reason.to_owned(),
        partition: partition.map(str::to_owned),
        rows,
    };
    let mut reasons = Vec::new();
    let counts = [
        ("rejected", collection.rows_rejected),
        ("conflict", collection.version_conflicts),
        ("late_row", collection.rows_late),
    ];
    reasons.extend(counts.iter().filter(|(_, rows)| *rows > 0).map(|(name, rows)| reason(name, None, *rows)));
    if collection.feeding().next().is_none() {
        reasons.push(reason("no_partitions", None, 0));
    }
    let silent = collection.feeding().filter(|partition| partition.resolved == ResolvedTs::ZERO);
    reasons.extend(silent.map(|partition| reason("no_progress", Some(&partition.name), 0)));
    if poisoned {
        reasons.push(reason("poisoned", None, 0));
    }
    reasons
}

/// What every answer about a collection carries.
pub(crate) fn freshness(collection: &Collection, view: u64, now_ms: u64, poisoned: bool) -> Freshness {
    let safe_ts = safe_ts(collection);
    let incomplete = incomplete(collection, poisoned);
    Freshness { safe_ts, lag_ms: lag_ms(safe_ts, now_ms), complete: incomplete.is_empty(), incomplete, view }
}

/// How far a timestamp lies behind the clock; `None` if there is none yet.
pub(crate) fn lag_ms(at: ResolvedTs, now_ms: u64) -> Option<u64> {
    (at != ResolvedTs::ZERO).then(|| now_ms.saturating_sub(at.physical_ms()))
}
