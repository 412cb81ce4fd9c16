//! Answering a search from one published state.

use std::time::Instant;

use hashbrown::{HashMap, HashSet};
use tantivy::collector::Count;
use tantivy::query::{AllQuery, BooleanQuery, BoostQuery, ConstScoreQuery, Occur, Query};
use tidegate_proto::searchfabric::v1::field_data;

use super::handle::{Reading, Scan, limit};
use super::page::{self, DEPTH_MAX, Position};
use super::render::{Loaded, all_fields};
use super::request::{
    FacetRequest, Filter, LIMIT_DEFAULT, LIMIT_MAX, NEIGHBOURS_MAX, SearchRequest, Sort, TextQuery,
    VectorClause,
};
use super::response::{Facet, FacetValue, Hit, SearchResponse};
use crate::engine::IndexView;
use crate::error::QueryError;
use crate::text::build::{Builder, json_path};
use crate::text::document::components;
use crate::text::facet::{self, Counted};
use crate::text::highlight::Needles;
use crate::text::layout::{FieldPlan, Kind};
use crate::text::order::{decimal_of_key, float_of_key, int_of_key};
use crate::text::top::{Ids, Key, Source, Top};
use crate::vector::Neighbour;

/// Ranks of each list that take part in a fusion, at least.
const FUSED_MIN: usize = 100;
/// Values of one facet, at most.
const FACET_VALUES_MAX: usize = 1_000;
/// Values of one facet unless asked otherwise.
const FACET_VALUES_DEFAULT: usize = 10;

/// One ranked document.
#[derive(Clone, Copy, Debug, Default)]
struct Ranked {
    id: u64,
    score: f32,
    text_score: Option<f32>,
    similarity: Option<f32>,
}

/// What a search found, before documents are loaded.
struct Outcome {
    ranked: Vec<Ranked>,
    total: u64,
    /// What facets are counted over.
    matching: Box<dyn Query>,
    needles: Needles,
}

/// Answers a search; also gives the page's documents as they are stored.
pub(crate) fn run(
    reading: &Reading,
    request: &SearchRequest,
    offset: usize,
) -> Result<(SearchResponse, Vec<Loaded>), QueryError> {
    let began = Instant::now();
    let index = reading.index()?;
    let limit = limit(request.limit, LIMIT_DEFAULT, LIMIT_MAX)?;
    if offset + limit > DEPTH_MAX {
        return Err(QueryError::Limit { field: "page", value: offset + limit, limit: DEPTH_MAX });
    }
    let builder = Builder { layout: &index.layout, text_paths: &index.text_paths };
    let outcome = find(reading, index, &builder, request, offset + limit)?;
    let facets = request.facets.iter().map(|wanted| facet(index, outcome.matching.as_ref(), wanted));
    let facets = facets.collect::<Result<Vec<_>, _>>()?;
    let (mut hits, mut loaded) = (Vec::new(), Vec::new());
    for ranked in outcome.ranked.iter().skip(offset).take(limit) {
        if let Some(document) = reading.load(ranked.id)? {
            hits.push(hit(reading, index, request, ranked, &document, &outcome.needles));
            loaded.push(document);
        }
    }
    let reached = offset + limit;
    let more = u64::try_from(reached).is_ok_and(|reached| reached < outcome.total) && reached < DEPTH_MAX;
    let more = more && outcome.ranked.len() >= reached;
    let at = Position { group: reading.view.group, offset: reached };
    let next = if more { Some(page::token(request, at)?) } else { None };
    let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    let freshness = reading.freshness.clone();
    Ok((SearchResponse { hits, total: outcome.total, facets, next, freshness, took_us }, loaded))
}

fn hit(
    reading: &Reading,
    index: &IndexView,
    request: &SearchRequest,
    ranked: &Ranked,
    document: &Loaded,
    needles: &Needles,
) -> Hit {
    let highlights = if request.highlight {
        needles.highlight(&all_fields(document, reading.collection()), |field, path| {
            let plan = index.layout.fields.iter().find(|plan| plan.name == field);
            plan.and_then(|plan| plan.analysis.as_ref()).is_some_and(|analysis| analysis.has_inner(path))
        })
    } else {
        Vec::new()
    };
    Hit {
        document: document.document(reading.collection(), |_| true),
        score: ranked.score,
        text_score: ranked.text_score,
        similarity: ranked.similarity,
        highlights,
    }
}

fn find(
    reading: &Reading,
    index: &IndexView,
    builder: &Builder<'_>,
    request: &SearchRequest,
    depth: usize,
) -> Result<Outcome, QueryError> {
    let filter = request.filter.as_ref().map(|filter| builder.filter(filter)).transpose()?;
    let text = request.text.as_ref().filter(|text| !text.text.trim().is_empty());
    match (text, &request.vector) {
        (None, Some(vector)) => by_vector(reading, index, builder, vector, filter, request, depth),
        (Some(text), Some(vector)) => fused(reading, index, builder, (text, vector), filter, request, depth),
        (text, None) => {
            let (query, needles) = matching(builder, text, filter)?;
            let page = top(index, query.as_ref(), &request.sort, text.is_some(), depth)?;
            let scored = text.is_some();
            let ranked = page.hits.iter().map(|found| Ranked {
                id: found.id,
                score: if scored { found.score } else { 0.0 },
                text_score: scored.then_some(found.score),
                similarity: None,
            });
            Ok(Outcome { ranked: ranked.collect(), total: page.total, matching: query, needles })
        }
    }
}

/// The query of text and filter; a filter never changes scores.
fn matching(
    builder: &Builder<'_>,
    text: Option<&TextQuery>,
    filter: Option<Box<dyn Query>>,
) -> Result<(Box<dyn Query>, Needles), QueryError> {
    let (text, needles) = match text {
        Some(text) => {
            let (query, needles) = builder.text(text)?;
            (Some(query), needles)
        }
        None => (None, Needles::default()),
    };
    let query: Box<dyn Query> = match (text, filter) {
        (None, None) => Box::new(AllQuery),
        (Some(text), None) => text,
        (None, Some(filter)) => Box::new(ConstScoreQuery::new(filter, 1.0)),
        (Some(text), Some(filter)) => {
            let filter = Box::new(BoostQuery::new(Box::new(ConstScoreQuery::new(filter, 1.0)), 0.0));
            Box::new(BooleanQuery::new(vec![(Occur::Must, text), (Occur::Must, filter)]))
        }
    };
    Ok((query, needles))
}

fn top(
    index: &IndexView,
    query: &dyn Query,
    sort: &[Sort],
    scored: bool,
    depth: usize,
) -> Result<crate::text::top::Page, QueryError> {
    let keys = if sort.is_empty() && scored {
        vec![Key { source: Source::Score, descending: true }]
    } else {
        sort.iter().map(|key| sort_key(index, key)).collect::<Result<_, _>>()?
    };
    Ok(index.searcher.search(query, &Top { keys, limit: depth })?)
}

fn sort_key(index: &IndexView, sort: &Sort) -> Result<Key, QueryError> {
    let source = match sort.field.as_str() {
        "_score" => Source::Score,
        "_id" => Source::Number("id".to_owned()),
        "_version" => Source::Number("version".to_owned()),
        address => column_of(index, address, "sort")?,
    };
    Ok(Key { source, descending: sort.descending })
}

/// The column that holds a field's values for sorting and counting.
fn column_of(index: &IndexView, address: &str, part: &str) -> Result<Source, QueryError> {
    let unknown = || QueryError::invalid(part, format!("there is no field {address:?}"));
    let (plan, path) = index.layout.resolve(address).ok_or_else(unknown)?;
    let name = |field| index.layout.schema.get_field_name(field).to_owned();
    match (plan.kind, plan.number, plan.exact) {
        (Kind::Json, _, _) => Ok(Source::Json(format!("jx.{}", json_path(plan, path)))),
        (_, Some(number), _) => Ok(Source::Number(name(number))),
        (_, _, Some(exact)) => Ok(Source::Text(name(exact))),
        _ => Err(QueryError::invalid(part, format!("{address:?} has no order"))),
    }
}

fn by_vector(
    reading: &Reading,
    index: &IndexView,
    builder: &Builder<'_>,
    vector: &VectorClause,
    filter: Option<Box<dyn Query>>,
    request: &SearchRequest,
    depth: usize,
) -> Result<Outcome, QueryError> {
    let k = if vector.k == 0 { depth } else { vector.k };
    let neighbours = neighbours(reading, index, vector, filter.as_deref(), k)?;
    let ids: Vec<u64> = neighbours.iter().map(|neighbour| neighbour.id).collect();
    let matching = builder.ids(&ids);
    let mut ranked: Vec<Ranked> = neighbours
        .iter()
        .map(|n| Ranked { id: n.id, score: n.similarity, text_score: None, similarity: Some(n.similarity) })
        .collect();
    if !request.sort.is_empty() {
        ranked = resorted(index, matching.as_ref(), &request.sort, &ranked)?;
    }
    let total = u64::try_from(ranked.len()).unwrap_or(u64::MAX);
    Ok(Outcome { ranked, total, matching, needles: Needles::default() })
}

/// The same documents in the order of the sort keys.
fn resorted(
    index: &IndexView,
    matching: &dyn Query,
    sort: &[Sort],
    ranked: &[Ranked],
) -> Result<Vec<Ranked>, QueryError> {
    let by_id: HashMap<u64, Ranked> = ranked.iter().map(|ranked| (ranked.id, *ranked)).collect();
    let page = top(index, matching, sort, false, ranked.len().max(1))?;
    Ok(page.hits.iter().filter_map(|found| by_id.get(&found.id).copied()).collect())
}

/// The nearest documents that pass the filter.
fn neighbours(
    reading: &Reading,
    index: &IndexView,
    clause: &VectorClause,
    filter: Option<&dyn Query>,
    k: usize,
) -> Result<Vec<Neighbour>, QueryError> {
    if k > NEIGHBOURS_MAX {
        return Err(QueryError::Limit { field: "vector.k", value: k, limit: NEIGHBOURS_MAX });
    }
    let plan = vector_field(index, clause)?;
    let Some(snapshot) = index.vectors.get(&plan.id) else { return Ok(Vec::new()) };
    let query = query_vector(reading, clause, plan)?;
    if query.len() != snapshot.dimensions() {
        let detail = format!("has {} dimensions, the field has {}", query.len(), snapshot.dimensions());
        return Err(QueryError::invalid("vector.values", detail));
    }
    let metric = clause.metric.unwrap_or_else(|| snapshot.metric());
    let own = clause.like;
    Ok(match filter {
        None => snapshot.nearest(&query, metric, k, |id| Some(id) != own),
        Some(filter) => {
            let admitted: HashSet<u64> = index.searcher.search(filter, &Ids)?.into_iter().collect();
            snapshot.nearest(&query, metric, k, |id| Some(id) != own && admitted.contains(&id))
        }
    })
}

fn vector_field<'a>(index: &'a IndexView, clause: &VectorClause) -> Result<&'a FieldPlan, QueryError> {
    let mut vectors = index.layout.fields.iter().filter(|plan| matches!(plan.kind, Kind::Vector { .. }));
    match &clause.field {
        Some(name) => vectors
            .find(|plan| plan.name == *name)
            .ok_or_else(|| QueryError::invalid("vector.field", format!("there is no vector field {name:?}"))),
        None => match (vectors.next(), vectors.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(QueryError::invalid("vector.field", "the collection has no vector field")),
            _ => Err(QueryError::invalid("vector.field", "the collection has several; name one")),
        },
    }
}

fn query_vector(reading: &Reading, clause: &VectorClause, plan: &FieldPlan) -> Result<Vec<f32>, QueryError> {
    let like = match (&clause.values, clause.like) {
        (Some(values), None) if values.iter().all(|x| x.is_finite()) => return Ok(values.clone()),
        (Some(_), None) => return Err(QueryError::invalid("vector.values", "must be finite")),
        (None, Some(like)) => like,
        _ => return Err(QueryError::invalid("vector", "exactly one of values and like is needed")),
    };
    let missing = || QueryError::invalid("vector.like", format!("document {like} has no such vector"));
    let loaded = reading.load(like)?.ok_or_else(missing)?;
    let field = loaded.fields(reading.collection()).find(|(field, _)| field.field_id == plan.id);
    match field.and_then(|(_, value)| value.value.as_ref()) {
        Some(field_data::Value::VectorValue(vector)) => components(vector).ok_or_else(missing),
        _ => Err(missing()),
    }
}

/// Reciprocal rank fusion of the text ranking and the vector ranking.
fn fused(
    reading: &Reading,
    index: &IndexView,
    builder: &Builder<'_>,
    (text, vector): (&TextQuery, &VectorClause),
    filter: Option<Box<dyn Query>>,
    request: &SearchRequest,
    depth: usize,
) -> Result<Outcome, QueryError> {
    let lists = depth.max(FUSED_MIN);
    let k = if vector.k == 0 { lists } else { vector.k };
    let neighbours = neighbours(reading, index, vector, filter.as_deref(), k)?;
    let (query, needles) = matching(builder, Some(text), filter)?;
    let page = top(index, query.as_ref(), &[], true, lists)?;
    let mut by_id: HashMap<u64, Ranked> = HashMap::new();
    let share = |weight: f32, rank: u16| weight / (rank_constant(request) + f32::from(rank));
    for (rank, found) in (1..=u16::MAX).zip(&page.hits) {
        let ranked = by_id.entry(found.id).or_insert(Ranked { id: found.id, ..Ranked::default() });
        ranked.score += share(request.fusion.text_weight, rank);
        ranked.text_score = Some(found.score);
    }
    for (rank, neighbour) in (1..=u16::MAX).zip(&neighbours) {
        let ranked = by_id.entry(neighbour.id).or_insert(Ranked { id: neighbour.id, ..Ranked::default() });
        ranked.score += share(request.fusion.vector_weight, rank);
        ranked.similarity = Some(neighbour.similarity);
    }
    let mut ranked: Vec<Ranked> = by_id.into_values().collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.id.cmp(&b.id)));
    let total = page.total.max(u64::try_from(ranked.len()).unwrap_or(u64::MAX));
    if !request.sort.is_empty() {
        let ids: Vec<u64> = ranked.iter().map(|ranked| ranked.id).collect();
        ranked = resorted(index, builder.ids(&ids).as_ref(), &request.sort, &ranked)?;
    }
    Ok(Outcome { ranked, total, matching: query, needles })
}

fn rank_constant(request: &SearchRequest) -> f32 {
    let constant = request.fusion.rank_constant;
    f32::from(u16::try_from(constant).unwrap_or(u16::MAX))
}

fn facet(index: &IndexView, matching: &dyn Query, wanted: &FacetRequest) -> Result<Facet, QueryError> {
    let limit = limit(wanted.limit, FACET_VALUES_DEFAULT, FACET_VALUES_MAX)?;
    let source = column_of(index, &wanted.field, "facets")?;
    let (column, json) = match source {
        Source::Json(column) => (column, true),
        Source::Number(column) | Source::Text(column) => (column, false),
        Source::Score => return Err(QueryError::invalid("facets", "scores are not counted")),
    };
    let counts = index.searcher.search(matching, &facet::Count { column, json })?;
    let kind = index.layout.resolve(&wanted.field).map_or(Kind::Text, |(plan, _)| plan.kind);
    let distinct = u64::try_from(counts.len()).unwrap_or(u64::MAX);
    let mut counts: Vec<(Counted, u64)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts.truncate(limit);
    let values = counts.into_iter().map(|(value, count)| FacetValue { value: counted(kind, value), count });
    Ok(Facet { field: wanted.field.clone(), values: values.collect(), distinct })
}

/// A counted key as the value it stands for.
fn counted(kind: Kind, value: Counted) -> serde_json::Value {
    match (kind, value) {
        (Kind::Decimal, Counted::Text(key)) => decimal_of_key(&key).unwrap_or(key).into(),
        (_, Counted::Text(text)) => text.into(),
        (Kind::Bool, Counted::Number(key)) => (key != 0).into(),
        (Kind::Int | Kind::Timestamp, Counted::Number(key)) => int_of_key(key).into(),
        (Kind::Float, Counted::Number(key)) => float_of_key(key).into(),
        (_, Counted::Number(key)) => key.into(),
        (_, Counted::Json(bits)) => f64::from_bits(bits).into(),
        (_, Counted::Bool(truth)) => truth.into(),
    }
}

/// How many documents match.
pub(crate) fn count(
    reading: &Reading,
    text: Option<&TextQuery>,
    filter: Option<&Filter>,
) -> Result<u64, QueryError> {
    let index = reading.index()?;
    let builder = Builder { layout: &index.layout, text_paths: &index.text_paths };
    let filter = filter.map(|filter| builder.filter(filter)).transpose()?;
    let (query, _) = matching(&builder, text, filter)?;
    let count = index.searcher.search(query.as_ref(), &Count)?;
    Ok(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Documents in ascending id, optionally only those that pass a filter.
pub(crate) fn scan(
    reading: &Reading,
    admitted: Option<&HashSet<u64>>,
    after: Option<u64>,
    limit: usize,
) -> Result<Scan, QueryError> {
    let mut documents = Vec::new();
    for entry in reading.view.store.scan(reading.collection().uid, after)? {
        let (id, record) = entry?;
        if admitted.is_some_and(|admitted| !admitted.contains(&id)) {
            continue;
        }
        if documents.len() == limit {
            let next = documents.last().map(|last: &Loaded| last.id);
            return Ok(Scan { documents, next });
        }
        documents.extend(Loaded::new(id, &record)?);
    }
    Ok(Scan { documents, next: None })
}

/// The ids of documents that pass a filter.
pub(crate) fn admitted(reading: &Reading, filter: &Filter) -> Result<HashSet<u64>, QueryError> {
    let index = reading.index()?;
    let builder = Builder { layout: &index.layout, text_paths: &index.text_paths };
    let query = builder.filter(filter)?;
    Ok(index.searcher.search(query.as_ref(), &Ids)?.into_iter().collect())
}
