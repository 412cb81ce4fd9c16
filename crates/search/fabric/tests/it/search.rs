//! The search expectations of the recorded demo (`crates/lab/testkit/data/README.md`), on the documents
//! that TiDB showed at its end.

use std::collections::BTreeMap;

use tidegate_contract::json::canonical;
use tidegate_fabric::query::request::*;
use tidegate_fabric::query::response::*;
use tidegate_proto::searchfabric::v1::{
    FieldData, FieldSchema, FloatVector, MutationEntry, ScalarFieldType, VectorElement, VectorMetric,
    VectorTypeSpec, VectorValue, atomic_value, field_data, field_schema, vector_value,
};
use tidegate_testkit::{Cell, Expected, TableSnapshot};

use crate::support::*;

/// The demo's three tables as collections.
async fn demo() -> World {
    let expected = Expected::open(tidegate_testkit::data::path("demo.expected.json.zst")).unwrap();
    let tables = &expected.snapshots.last().unwrap().tables;
    let mut world = World::new().await;
    for (id, name, fields) in collections() {
        let mut producer = world.create(id, definition(name, fields, &[(id, 1)])).await;
        let entries = documents(&producer, &tables[name]);
        let batches = entries.chunks(1_000).map(|chunk| producer.batch(chunk.to_vec())).collect();
        for ack in world.send(batches).await {
            outcome(ack).expect("applied");
        }
        world.send_one(producer.batch(vec![progress(100)])).await.expect("applied");
    }
    world
}

fn collections() -> [(&'static str, &'static str, Vec<FieldSchema>); 3] {
    use ScalarFieldType as S;
    let vector = VectorTypeSpec {
        dimensions: 64,
        element: VectorElement::F32.into(),
        metric: VectorMetric::Cosine.into(),
    };
    let embedding =
        FieldSchema { r#type: Some(field_schema::Type::Vector(vector)), ..scalar(8, "embedding", S::String) };
    let emoji = vec![
        scalar(1, "id", S::Uint64),
        searchable(scalar(2, "glyph", S::String), false),
        searchable(scalar(3, "label", S::String), false),
        searchable(scalar(4, "tags", S::Json), false),
        searchable(scalar(5, "category", S::String), true),
        scalar(6, "since", S::Decimal),
        searchable(scalar(7, "names", S::Json), false),
        embedding,
        scalar(9, "uses", S::Uint64),
        searchable(scalar(10, "updated_at", S::String), true),
    ];
    let airport = vec![
        scalar(1, "id", S::Uint64),
        searchable(scalar(2, "iata", S::String), true),
        searchable(scalar(3, "name", S::String), false),
        searchable(scalar(4, "city", S::String), false),
        searchable(scalar(5, "state", S::String), true),
        searchable(scalar(6, "country", S::String), false),
        scalar(7, "lat", S::Double),
        scalar(8, "lon", S::Double),
    ];
    let remark = vec![
        scalar(1, "id", S::Uint64),
        searchable(scalar(2, "body", S::String), false),
        searchable(scalar(3, "at", S::String), true),
    ];
    [
        ("table:1", "demo.emoji", emoji),
        ("table:2", "demo.airport", airport),
        ("table:3", "demo.remark", remark),
    ]
}

fn documents(producer: &Producer, table: &TableSnapshot) -> Vec<MutationEntry> {
    let document = |row: &Vec<Cell>| {
        let cells: BTreeMap<&str, &Cell> = table.columns.iter().map(String::as_str).zip(row).collect();
        let fields: Fields =
            cells.iter().map(|(name, cell)| ((*name).to_owned(), field(name, cell))).collect();
        let Cell::Text(id) = cells["id"] else { panic!("an id is text") };
        producer.upsert(id.parse().unwrap(), 50, fields)
    };
    table.rows.iter().map(document).collect()
}

fn field(name: &str, cell: &Cell) -> FieldData {
    let Cell::Text(value) = cell else { return null() };
    match name {
        "id" | "uses" => unsigned(value.parse().unwrap()),
        "lat" | "lon" => atomic(atomic_value::Value::DoubleValue(value.parse().unwrap())),
        "tags" | "names" => text(&canonical(value).unwrap()),
        "embedding" => {
            let values = serde_json::from_str(value).unwrap();
            let vector = vector_value::Value::F32Vector(FloatVector { values });
            FieldData { value: Some(field_data::Value::VectorValue(VectorValue { value: Some(vector) })) }
        }
        _ => text(value),
    }
}

async fn search(world: &World, request: SearchRequest) -> SearchResponse {
    world.fabric.query().search(request).await.unwrap()
}

fn within(field: &str, words: &str) -> SearchRequest {
    SearchRequest {
        collection: "demo.emoji".to_owned(),
        text: Some(TextQuery::new(words).within(field)),
        limit: 100,
        ..SearchRequest::default()
    }
}

fn only(filter: &str) -> SearchRequest {
    SearchRequest {
        collection: "demo.emoji".to_owned(),
        filter: Some(Filter::parse(filter).expect(filter)),
        limit: 100,
        ..SearchRequest::default()
    }
}

fn ids(response: &SearchResponse) -> Vec<u64> {
    response.hits.iter().map(|hit| hit.document.id).collect()
}

fn sorted(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable();
    ids
}

fn glyphs(response: &SearchResponse) -> Vec<String> {
    let glyph = |hit: &Hit| hit.document.fields["glyph"].as_str().unwrap().to_owned();
    let mut glyphs: Vec<_> = response.hits.iter().map(glyph).collect();
    glyphs.sort();
    glyphs
}

fn glyph_list(glyphs: &[&str]) -> Vec<String> {
    let mut glyphs: Vec<_> = glyphs.iter().map(|glyph| (*glyph).to_owned()).collect();
    glyphs.sort();
    glyphs
}

#[tokio::test]
async fn the_recorded_expectations_hold() {
    let world = demo().await;
    let counted = |name: &'static str, filter: &'static str| {
        let query = world.fabric.query();
        async move {
            let filter = (!filter.is_empty()).then(|| Filter::parse(filter).unwrap());
            query.count(name, None, filter, ReadOptions::default()).await.unwrap().count
        }
    };
    assert_eq!(counted("demo.emoji", "").await, 1_915);
    assert_eq!(counted("demo.airport", "").await, 3_305);
    assert_eq!(counted("demo.remark", "").await, 1);

    let cats = search(&world, within("label", "cat")).await;
    assert_eq!(cats.total, 12);
    let expected: Vec<u64> = (126..=134).chain(3677..=3679).collect();
    assert_eq!(sorted(ids(&cats)), expected);
    assert_eq!(ids(&cats)[0], 3678, "the label that is nothing but `cat` comes first");

    assert_eq!(counted("demo.emoji", "tags = money").await, 17);
    let money = search(&world, only("tags = money")).await;
    assert!(["💰️", "💵", "🪙"].iter().all(|glyph| glyphs(&money).contains(&(*glyph).to_owned())));

    assert_eq!(search(&world, within("names.de", "herz")).await.total, 31);
    let planes = search(&world, within("names.ja", "飛行機")).await;
    assert_eq!(glyphs(&planes), glyph_list(&["✈️", "🛩️", "🛫", "🛬"]));
    let dogs = search(&world, within("names.ja", "犬")).await;
    assert_eq!(glyphs(&dogs), glyph_list(&["🦮", "🐕\u{200d}🦺"]));
    let planes = search(&world, within("names.zh", "飞机")).await;
    assert_eq!(glyphs(&planes), glyph_list(&["✈️", "🛩️"]));
    let dogs = search(&world, within("names.zh", "狗")).await;
    assert_eq!(glyphs(&dogs), glyph_list(&["🐶", "🐕️", "🌭"]));

    assert_eq!(counted("demo.emoji", "category = food").await, 131);
    assert_eq!(counted("demo.emoji", "since >= 15.0").await, 66);
    assert_eq!(counted("demo.airport", "state = AK").await, 258);
    assert_eq!(counted("demo.airport", "city = Springfield").await, 8);
    let seattle = SearchRequest { collection: "demo.airport".to_owned(), ..only("iata = SEA") };
    let seattle = search(&world, seattle).await;
    assert_eq!(seattle.hits[0].document.fields["name"], "Seattle-Tacoma Intl");
}

#[tokio::test]
async fn neighbours_of_the_cat_face_are_the_recorded_ones() {
    let world = demo().await;
    let like = VectorClause { like: Some(3677), k: 6, ..VectorClause::default() };
    let request = SearchRequest {
        collection: "demo.emoji".to_owned(),
        vector: Some(like.clone()),
        ..SearchRequest::default()
    };
    let response = search(&world, request.clone()).await;
    let found: Vec<(String, f32)> = response
        .hits
        .iter()
        .map(|hit| {
            let label = hit.document.fields["label"].as_str().unwrap().to_owned();
            (label, (hit.score * 1_000.0).round() / 1_000.0)
        })
        .collect();
    let expected = [
        ("dog face", 0.873),
        ("rabbit face", 0.872),
        ("mouse face", 0.810),
        ("hamster", 0.773),
        ("tiger face", 0.740),
        ("pouting cat", 0.720),
    ];
    assert_eq!(found, expected.map(|(label, score)| (label.to_owned(), score)));

    let filter = Filter::parse("category = smileys").ok();
    let filtered = search(&world, SearchRequest { filter, ..request.clone() }).await;
    assert_eq!(filtered.hits[0].document.fields["label"], "pouting cat");
    assert!(filtered.hits.iter().all(|hit| hit.document.fields["category"] == "smileys"));

    let text = Some(TextQuery::new("pouting"));
    let fused = search(&world, SearchRequest { text, ..request }).await;
    let top = &fused.hits[0];
    assert_eq!(top.document.fields["label"], "pouting cat", "first by words and among the nearest");
    assert!(top.text_score.is_some() && top.similarity.is_some());
}

#[tokio::test]
async fn the_largest_numbers_sort_first_exactly() {
    let world = demo().await;
    let request = SearchRequest {
        collection: "demo.emoji".to_owned(),
        sort: vec![Sort { field: "uses".to_owned(), descending: true }],
        limit: 4,
        ..SearchRequest::default()
    };
    let response = search(&world, request).await;
    let found: Vec<(u64, u64)> = response
        .hits
        .iter()
        .map(|hit| (hit.document.id, hit.document.fields["uses"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [(100_002, u64::MAX), (1, 1_435), (2, 597), (3, 344)]);
    assert_eq!(ids(&search(&world, only("uses > 18446744073709551614")).await), [100_002]);
    let newest = SearchRequest {
        sort: vec![Sort { field: "since".to_owned(), descending: true }],
        ..only("since < 99")
    };
    assert_eq!(search(&world, newest).await.hits[0].document.fields["since"], "17.0");
}

#[tokio::test]
async fn facets_count_every_match_and_not_only_the_page() {
    let world = demo().await;
    let facet = |field: &str| FacetRequest { field: field.to_owned(), limit: 3 };
    let request = SearchRequest {
        facets: vec![facet("category"), facet("since"), facet("tags")],
        limit: 1,
        ..within("label", "cat")
    };
    let response = search(&world, request).await;
    let values = |facet: &Facet| -> Vec<(String, u64)> {
        facet.values.iter().map(|v| (v.value.as_str().unwrap_or_default().to_owned(), v.count)).collect()
    };
    // 126–134 are smileys (since 0.6), 3677–3679 animals (since 0.6, 0.7 and 13.0).
    assert_eq!(values(&response.facets[0]), [("smileys".to_owned(), 9), ("animals".to_owned(), 3)]);
    assert_eq!(response.facets[1].values.iter().map(|v| v.count).sum::<u64>(), 12);
    // Counted in the recorded tags of these twelve by hand: one of them lacks the tag `cat`.
    assert_eq!(values(&response.facets[2])[..2], [("animal".to_owned(), 12), ("cat".to_owned(), 11)]);
}

#[tokio::test]
async fn pages_of_one_search_come_from_one_state_and_join_without_gap() {
    let mut world = demo().await;
    let whole = ids(&search(&world, SearchRequest { limit: 1_000, ..within("label", "face") }).await);
    let mut request = SearchRequest { limit: 7, ..within("label", "face") };
    let mut joined = Vec::new();
    loop {
        let page = search(&world, request.clone()).await;
        joined.extend(ids(&page));
        // Another state is published between pages; it must not show.
        if joined.len() == 7 {
            let mut other = world.create("other", small(&["table:9"])).await;
            world.send_one(other.batch(vec![progress(20)])).await.expect("applied");
        }
        match page.next {
            Some(token) => request.page_token = Some(token),
            None => break,
        }
    }
    assert!(whole.len() > 14);
    assert_eq!(joined, whole);
    let foreign = SearchRequest { page_token: Some("1.7.0123456789abcdef".to_owned()), ..request };
    let refused = world.fabric.query().search(foreign).await;
    assert!(matches!(refused, Err(tidegate_fabric::QueryError::PageToken(_))), "{refused:?}");
}

#[tokio::test]
async fn words_are_found_in_every_form_the_language_offers() {
    let world = demo().await;
    let everywhere = |words: &str| SearchRequest {
        collection: "demo.emoji".to_owned(),
        text: Some(TextQuery::new(words)),
        limit: 100,
        highlight: true,
        ..SearchRequest::default()
    };
    let has = |response: &SearchResponse, id| ids(response).contains(&id);
    assert!(has(&search(&world, within("label", "\"cat with tears\"")).await, 128));
    assert_eq!(search(&world, within("label", "\"tears with cat\"")).await.total, 0);
    assert!(has(&search(&world, within("label", "tears cat")).await, 128));
    assert_eq!(search(&world, within("label", "cat -tears")).await.total, 11);
    assert!(has(&search(&world, within("label", "grin* cat")).await, 126));
    assert!(has(&search(&world, within("label", "poutin~ cat")).await, 134));
    assert_eq!(search(&world, within("label", "ca")).await.total, 0, "a word is not found by its beginning");
    let typing = TextQuery { prefix: true, ..TextQuery::new("pouting ca").within("label") };
    let typing = SearchRequest { text: Some(typing), ..within("label", "") };
    assert_eq!(ids(&search(&world, typing).await), [134]);
    assert!(has(&search(&world, everywhere("🐱")).await, 3677), "an emoji finds itself");
    assert!(has(
        &search(&world, everywhere("herz rotes")).await,
        ids(&search(&world, within("names.de", "rotes herz")).await)[0]
    ));
    assert!(has(&search(&world, everywhere("label:pouting category:smileys")).await, 134));

    let highlighted = search(&world, within("names.de", "herz")).await;
    assert!(highlighted.hits.iter().all(|hit| hit.highlights.is_empty()), "only where asked for");
    let highlighted =
        search(&world, SearchRequest { highlight: true, ..within("names.de", "dekoration") }).await;
    let pieces = &highlighted.hits[0].highlights[0];
    assert_eq!((pieces.field.as_str(), pieces.pieces[0].hit), ("names.de", true));
    assert_eq!(pieces.pieces[0].text, "Herzdekoration");
}

#[tokio::test]
async fn mistakes_in_a_request_are_named() {
    let world = demo().await;
    let refused =
        async |request: SearchRequest| world.fabric.query().search(request).await.expect_err("refused");
    let error = refused(only("colour = red")).await;
    assert_eq!(error.to_string(), "there is no field \"colour\"");
    let error = refused(only("uses = many")).await;
    assert!(error.to_string().contains("not a number"), "{error}");
    let error = refused(SearchRequest { limit: 5_000, ..only("uses = 1") }).await;
    assert_eq!(error.to_string(), "limit is 5000, the limit is 1000");
    let short = VectorClause { values: Some(vec![1.0]), ..VectorClause::default() };
    let error = refused(SearchRequest { vector: Some(short), ..only("uses = 1") }).await;
    assert!(error.to_string().contains("1 dimensions, the field has 64"), "{error}");
    let error = refused(SearchRequest { collection: "demo.none".to_owned(), ..only("uses = 1") }).await;
    assert!(matches!(error, tidegate_fabric::QueryError::CollectionNotFound(_)));
}
