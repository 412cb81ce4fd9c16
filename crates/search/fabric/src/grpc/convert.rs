//! Between the contract's messages and the fabric's own types.

use tidegate_contract::error::{Breach, SfErrorCode};
use tidegate_core::{Diagnostic, Ts};
use tidegate_proto::searchfabric::v1 as pb;
use tidegate_proto::searchfabric::v1::{
    atomic_value, collection_selector, filter, read_consistency, vector_query,
};
use tonic::Status;

use crate::catalog::{Collection, Selector};
use crate::error::QueryError;
use crate::query::request::{
    BoostedField, Edge, FacetRequest, Filter, Fusion, Literal, ReadOptions, SearchRequest, Sort, TextQuery,
    VectorClause,
};
use crate::query::{Loaded, response};
use crate::vector::Metric;
use crate::visibility::{applied, modalities};

/// The namespace a caller means.
pub(super) fn namespace(given: &str) -> &str {
    if given.is_empty() { crate::query::DEFAULT_NAMESPACE } else { given }
}

/// The collection a caller means.
pub(super) fn selector(selector: &pb::CollectionSelector) -> Result<Selector<'_>, Status> {
    match &selector.collection {
        Some(collection_selector::Collection::Name(name)) => Ok(Selector::Name(name)),
        Some(collection_selector::Collection::CollectionId(id)) => Ok(Selector::Id(id)),
        None => Err(status(QueryError::invalid("collection", "is missing"))),
    }
}

/// A failed read as a status with the contract's error in it.
pub(super) fn status(error: QueryError) -> Status {
    let code = SfErrorCode::from_str_name(error.code()).unwrap_or(SfErrorCode::SfInternal);
    let path = match &error {
        QueryError::Invalid { field, .. } => field.clone(),
        QueryError::Limit { field, .. } => (*field).to_owned(),
        _ => String::new(),
    };
    Breach::new(code, path, error.to_string()).to_status()
}

/// How fresh an answer must be.
pub(super) fn read_options(consistency: Option<&pb::ReadConsistency>) -> ReadOptions {
    let Some(consistency) = consistency else { return ReadOptions::default() };
    let wait_ms = u64::from(consistency.wait_ms_max);
    match consistency.bound {
        Some(read_consistency::Bound::ReadAtLeastTs(ts)) => {
            ReadOptions { at_least: Some(Ts::new(ts)), staleness_max_ms: None, wait_ms }
        }
        Some(read_consistency::Bound::StalenessMsMax(ms)) => {
            ReadOptions { at_least: None, staleness_max_ms: Some(ms), wait_ms }
        }
        None => ReadOptions { wait_ms, ..ReadOptions::default() },
    }
}

/// A search. The collection is named the way the caller did, so that page tokens belong to the same request.
pub(super) fn search(request: &pb::SearchRequest) -> Result<SearchRequest, Status> {
    let selector = request.collection.clone().unwrap_or_default();
    let filter = request.filter.as_ref().map(|filter| self::filter(filter, "filter", 0)).transpose()?;
    let fusion = request.fusion.unwrap_or_default();
    let or_one = |weight: f32| if weight == 0.0 { 1.0 } else { weight };
    Ok(SearchRequest {
        collection: format!("{:?}", selector.collection),
        text: request.text.as_ref().map(text),
        vector: request.vector.as_ref().map(vector),
        filter,
        sort: request
            .sort
            .iter()
            .map(|key| Sort { field: key.field.clone(), descending: key.descending })
            .collect(),
        facets: request
            .facets
            .iter()
            .map(|facet| FacetRequest { field: facet.field.clone(), limit: size(facet.limit) })
            .collect(),
        limit: size(request.limit),
        page_token: (!request.page_token.is_empty()).then(|| request.page_token.clone()),
        highlight: !request.highlight_fields.is_empty(),
        fusion: Fusion {
            rank_constant: if fusion.rrf_k == 0 { Fusion::default().rank_constant } else { fusion.rrf_k },
            text_weight: or_one(fusion.text_weight),
            vector_weight: or_one(fusion.vector_weight),
        },
        read: read_options(request.consistency.as_ref()),
    })
}

fn size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// A text query.
pub(super) fn text(query: &pb::TextQuery) -> TextQuery {
    let boost = |boost: f32| if boost == 0.0 { 1.0 } else { boost };
    TextQuery {
        text: query.text.clone(),
        fields: query
            .fields
            .iter()
            .map(|field| BoostedField { field: field.field.clone(), boost: boost(field.boost) })
            .collect(),
        any: query.operator() == pb::TextOperator::Any,
        fuzziness: u8::try_from(query.fuzziness).unwrap_or(u8::MAX),
        phrase: query.phrase,
        prefix: query.prefix,
    }
}

fn vector(query: &pb::VectorQuery) -> VectorClause {
    let (values, like) = match &query.target {
        Some(vector_query::Target::Vector(vector)) => (Some(vector.values.clone()), None),
        Some(vector_query::Target::LikeDocId(id)) => (None, Some(*id)),
        None => (None, None),
    };
    VectorClause {
        field: (!query.field.is_empty()).then(|| query.field.clone()),
        values,
        like,
        k: size(query.k),
        metric: match query.metric() {
            pb::VectorMetric::Unspecified => None,
            pb::VectorMetric::Cosine => Some(Metric::Cosine),
            pb::VectorMetric::Dot => Some(Metric::Dot),
            pb::VectorMetric::L2 => Some(Metric::L2),
        },
    }
}

/// Deepest nesting of a filter message; conversion is recursive.
const FILTER_DEPTH_MAX: usize = 32;

/// A filter.
pub(super) fn filter(filter: &pb::Filter, path: &str, depth: usize) -> Result<Filter, Status> {
    if depth > FILTER_DEPTH_MAX {
        return Err(status(QueryError::Limit {
            field: "filter depth",
            value: depth,
            limit: FILTER_DEPTH_MAX,
        }));
    }
    let list = |list: &pb::FilterList| {
        list.filters.iter().map(|part| self::filter(part, path, depth + 1)).collect::<Result<Vec<_>, _>>()
    };
    let missing = |detail| status(QueryError::invalid(path, detail));
    Ok(match filter.filter.as_ref().ok_or_else(|| missing("is empty"))? {
        filter::Filter::AllOf(parts) => Filter::And(list(parts)?),
        filter::Filter::AnyOf(parts) => Filter::Or(list(parts)?),
        filter::Filter::NoneOf(part) => Filter::Not(Box::new(self::filter(part, path, depth + 1)?)),
        filter::Filter::Term(term) => Filter::In {
            field: term.field.clone(),
            values: term.values.iter().map(|v| literal(v, path)).collect::<Result<_, _>>()?,
        },
        filter::Filter::Range(range) => {
            let edge = |value: &Option<pb::AtomicValue>, exclusive: bool| {
                let literal = value.as_ref().map(|value| literal(value, path)).transpose()?;
                Ok::<_, Status>(literal.map(|value| Edge { value, inclusive: !exclusive }))
            };
            Filter::Range {
                field: range.field.clone(),
                from: edge(&range.min, range.min_exclusive)?,
                to: edge(&range.max, range.max_exclusive)?,
            }
        }
        filter::Filter::Exists(field) => Filter::Exists { field: field.clone() },
        filter::Filter::DocIds(ids) => Filter::Ids(ids.doc_ids.clone()),
    })
}

fn literal(value: &pb::AtomicValue, path: &str) -> Result<Literal, Status> {
    use atomic_value::Value;
    Ok(match &value.value {
        Some(Value::BoolValue(b)) => Literal::Bool(*b),
        Some(Value::Int64Value(n)) => u64::try_from(*n).map_or(Literal::Int(*n), Literal::UInt),
        Some(Value::Uint64Value(n)) => Literal::UInt(*n),
        Some(Value::FloatValue(x)) => Literal::Float(f64::from(*x)),
        Some(Value::DoubleValue(x)) => Literal::Float(*x),
        Some(Value::StringValue(text)) => Literal::Text(text.clone()),
        Some(Value::BytesValue(bytes)) => Literal::Text(tidegate_core::span::Hex(bytes).to_string()),
        Some(Value::NullValue(_)) | None => {
            return Err(status(QueryError::invalid(path, "null is tested with `exists`")));
        }
    })
}

/// A document with the fields that are wanted.
pub(super) fn document(loaded: &Loaded, collection: &Collection, wanted: &[String]) -> pb::Document {
    let keep = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let fields = loaded.fields(collection).filter(|(field, _)| keep(&field.name));
    pb::Document {
        doc_id: loaded.id,
        commit_ts: loaded.version.get(),
        fields: fields.map(|(field, value)| (field.name.clone(), value.clone())).collect(),
        source_partition: loaded.partition_name(collection),
        schema_version: loaded.schema_version,
    }
}

/// Freshness as every answer carries it.
pub(super) fn freshness(collection: &Collection, freshness: &response::Freshness) -> pb::Freshness {
    let modalities = modalities(collection);
    let watermarks = modalities.iter().map(|modality| pb::ModalityWatermark {
        modality: (*modality).into(),
        applied_ts: applied(collection, *modality).get(),
    });
    let partitions = collection.feeding().map(|partition| pb::PartitionFreshness {
        source_partition: partition.name.clone(),
        applied_ts: modalities.iter().map(|m| partition.applied(*m).get()).min().unwrap_or_default(),
        source_epoch: partition.epoch,
        source_seq: partition.seq,
        rows_applied: partition.rows_applied,
    });
    let reasons = freshness.incomplete.iter().map(|reason| match &reason.partition {
        Some(partition) => format!("{} in {partition}", reason.reason),
        None => format!("{}: {} rows", reason.reason, reason.rows),
    });
    let current = collection.current();
    pb::Freshness {
        safe_ts: freshness.safe_ts.get(),
        modalities: watermarks.collect(),
        partitions: partitions.collect(),
        completeness: Some(pb::Completeness {
            complete: freshness.complete,
            rows_rejected: collection.rows_rejected,
            version_conflicts: collection.version_conflicts,
            reasons: reasons.collect(),
        }),
        schema_version: current.map_or(0, |generation| generation.generation.schema_version),
        schema_generation_token: current.map_or_else(String::new, |generation| generation.token().to_owned()),
    }
}

/// Facets as the contract carries them.
pub(super) fn facets(facets: Vec<response::Facet>) -> Vec<pb::Facet> {
    let convert = |facet: response::Facet| pb::Facet {
        field: facet.field,
        values: facet
            .values
            .into_iter()
            .map(|value| pb::FacetValue { value: Some(atomic(&value.value)), documents: value.count })
            .collect(),
    };
    facets.into_iter().map(convert).collect()
}

fn atomic(value: &serde_json::Value) -> pb::AtomicValue {
    use atomic_value::Value;
    let value = match value {
        serde_json::Value::Bool(b) => Value::BoolValue(*b),
        serde_json::Value::Number(n) => n
            .as_u64()
            .map(Value::Uint64Value)
            .or_else(|| n.as_i64().map(Value::Int64Value))
            .unwrap_or_else(|| Value::DoubleValue(n.as_f64().unwrap_or_default())),
        serde_json::Value::String(text) => Value::StringValue(text.clone()),
        other => Value::StringValue(other.to_string()),
    };
    pb::AtomicValue { value: Some(value) }
}
