//! Three example searches, asked over gRPC as any client would, and printed with their freshness.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_core::ResolvedTs;
use tidegate_proto::searchfabric::v1 as sf;
use tidegate_proto::searchfabric::v1::{atomic_value, field_data, filter, vector_query};

use super::{EMOJI, Index, refused, selector};
use crate::failure::{CliError, Failure};

/// Hits that are printed of each search.
const HITS: u32 = 4;
/// 🐱 cat face.
const CAT: u64 = 3677;

/// Asks all three and prints them.
pub(crate) async fn show(index: &mut Index) -> Result<(), Failure> {
    println!("\ntext, in two languages");
    search(index, "herz, in German names", text("herz", "names.de")).await?;
    search(index, "犬, in Japanese names", text("犬", "names.ja")).await?;
    println!("\nvectors nearest to 🐱 cat face ({CAT})");
    search(index, "more like this", nearest(CAT)).await?;
    println!("\na filter by category, most used first");
    search(index, "category = food", category("food")).await
}

fn text(words: &str, field: &str) -> sf::SearchRequest {
    let fields = vec![sf::TextField { field: field.to_owned(), ..sf::TextField::default() }];
    let text = sf::TextQuery { text: words.to_owned(), fields, prefix: true, ..sf::TextQuery::default() };
    sf::SearchRequest { text: Some(text), ..sf::SearchRequest::default() }
}

fn nearest(id: u64) -> sf::SearchRequest {
    let target = Some(vector_query::Target::LikeDocId(id));
    let vector = sf::VectorQuery { field: "embedding".to_owned(), target, ..sf::VectorQuery::default() };
    sf::SearchRequest { vector: Some(vector), ..sf::SearchRequest::default() }
}

fn category(name: &str) -> sf::SearchRequest {
    let value = sf::AtomicValue { value: Some(atomic_value::Value::StringValue(name.to_owned())) };
    let term = sf::TermFilter { field: "category".to_owned(), values: vec![value] };
    let filter = sf::Filter { filter: Some(filter::Filter::Term(term)) };
    let sort = sf::SortKey { field: "uses".to_owned(), descending: true };
    sf::SearchRequest { filter: Some(filter), sort: vec![sort], ..sf::SearchRequest::default() }
}

async fn search(index: &mut Index, title: &str, request: sf::SearchRequest) -> Result<(), Failure> {
    let request = sf::SearchRequest { collection: Some(selector(EMOJI)), limit: HITS, ..request };
    let answer = index.query.search(request).await.map_err(refused("Search"))?.into_inner();
    if answer.hits.is_empty() {
        return Err(
            CliError::Unexpected { what: format!("the example search {title:?} found nothing") }.into()
        );
    }
    println!("  {title}: {} found in {:.1} ms", answer.total, milliseconds(answer.took_us));
    for hit in &answer.hits {
        println!("    {}", line(hit));
    }
    println!("    {}", freshness(&answer.freshness.unwrap_or_default()));
    Ok(())
}

fn milliseconds(us: u64) -> f64 {
    std::time::Duration::from_micros(us).as_secs_f64() * 1000.0
}

/// `🐶 dog face, Hundegesicht, イヌの顔, 狗脸  0.873`
fn line(hit: &sf::SearchHit) -> String {
    let document = hit.document.clone().unwrap_or_default();
    let names = string(&document, "names").unwrap_or_default();
    let names: serde_json::Map<String, serde_json::Value> = serde_json::from_str(names).unwrap_or_default();
    let names = names.values().filter_map(serde_json::Value::as_str);
    let label = string(&document, "label").into_iter();
    let words: Vec<&str> = label.chain(names).collect();
    let glyph = string(&document, "glyph").unwrap_or_default();
    let score = hit.vector_score.map(|score| format!("  {score:.3}")).unwrap_or_default();
    let uses = uint(&document, "uses").filter(|uses| *uses > 0).map(|uses| format!("  used {uses} times"));
    format!("{glyph} {}{score}{}", words.join(", "), uses.unwrap_or_default())
}

fn atomic<'a>(document: &'a sf::Document, field: &str) -> Option<&'a atomic_value::Value> {
    match document.fields.get(field)?.value.as_ref()? {
        field_data::Value::AtomicValue(value) => value.value.as_ref(),
        _ => None,
    }
}

fn string<'a>(document: &'a sf::Document, field: &str) -> Option<&'a str> {
    match atomic(document, field)? {
        atomic_value::Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn uint(document: &sf::Document, field: &str) -> Option<u64> {
    match atomic(document, field)? {
        atomic_value::Value::Uint64Value(uint) => Some(*uint),
        _ => None,
    }
}

/// `fresh: complete up to safe_ts 470829764953505799, 143 ms ago`
pub(crate) fn freshness(freshness: &sf::Freshness) -> String {
    let safe_ts = ResolvedTs::new(freshness.safe_ts);
    let complete = freshness.completeness.as_ref().is_some_and(|completeness| completeness.complete);
    let state = if complete { "complete" } else { "INCOMPLETE" };
    format!("fresh: {state} up to safe_ts {safe_ts}, {} ms ago", lag_ms(safe_ts))
}

/// How far `ts` lies behind this machine's clock.
pub(crate) fn lag_ms(ts: ResolvedTs) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX).saturating_sub(ts.physical_ms())
}
