//! The best hits by any sort keys, with the document's id as the last one, so that an order is total and does
//! not depend on how documents are spread over segments.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use smallvec::SmallVec;
use tantivy::collector::{Collector, SegmentCollector};
use tantivy::columnar::{Column, ColumnType, StrColumn};
use tantivy::{DocId, Score, SegmentOrdinal, SegmentReader};

use super::order::float_key;

/// Where a sort key comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// Relevance.
    Score,
    /// A numeric column.
    Number(String),
    /// A text column.
    Text(String),
    /// A member of a JSON column: text before numbers.
    Json(String),
}

/// One sort key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) source: Source,
    pub(crate) descending: bool,
}

/// The value of a sort key, comparable across segments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    /// Text.
    Text(String),
    /// An order-preserving number.
    Number(u64),
}

/// One of the best hits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) id: u64,
    pub(crate) score: Score,
    keys: Vec<Option<Value>>,
}

/// The best `limit` hits, and how many there are altogether.
pub(crate) struct Top {
    pub(crate) keys: Vec<Key>,
    pub(crate) limit: usize,
}

/// What [`Top`] collects.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) hits: Vec<Found>,
    pub(crate) total: u64,
}

type Ranks = SmallVec<[Option<(u8, u64)>; 2]>;

enum Opened {
    Score,
    Number(Option<Column<u64>>),
    Text(Option<StrColumn>),
    Json(Option<StrColumn>, Option<(Column<u64>, ColumnType)>),
}

/// A candidate inside one segment. Greater is worse, so that the heap's top is the one to give up first.
struct Candidate {
    ranks: Ranks,
    id: u64,
    score: Score,
    directions: SmallVec<[bool; 2]>,
}

impl Collector for Top {
    type Fruit = Page;
    type Child = Segment;

    fn for_segment(&self, _: SegmentOrdinal, reader: &SegmentReader) -> tantivy::Result<Segment> {
        let columns = self.keys.iter().map(|key| open(&key.source, reader)).collect::<Result<_, _>>()?;
        Ok(Segment {
            columns,
            directions: self.keys.iter().map(|key| key.descending).collect(),
            ids: reader.fast_fields().u64("id")?,
            limit: self.limit,
            best: BinaryHeap::new(),
            total: 0,
        })
    }

    fn requires_scoring(&self) -> bool {
        self.keys.iter().any(|key| key.source == Source::Score)
    }

    fn merge_fruits(&self, fruits: Vec<Page>) -> tantivy::Result<Page> {
        let mut page = Page::default();
        for fruit in fruits {
            page.total += fruit.total;
            page.hits.extend(fruit.hits);
        }
        let directions: Vec<bool> = self.keys.iter().map(|key| key.descending).collect();
        page.hits.sort_by(|a, b| compare(&a.keys, &b.keys, &directions).then(a.id.cmp(&b.id)));
        page.hits.truncate(self.limit);
        Ok(page)
    }
}

/// Better first. A missing value comes last in either direction.
fn compare<T: Ord>(a: &[Option<T>], b: &[Option<T>], descending: &[bool]) -> Ordering {
    for ((a, b), descending) in a.iter().zip(b).zip(descending) {
        let order = match (a, b) {
            (Some(a), Some(b)) if *descending => b.cmp(a),
            (Some(a), Some(b)) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

/// Opens a sort column; a segment in which no document has a value has no column.
fn open(source: &Source, reader: &SegmentReader) -> tantivy::Result<Opened> {
    let fast = reader.fast_fields();
    Ok(match source {
        Source::Score => Opened::Score,
        Source::Number(column) => Opened::Number(fast.column_opt(column)?),
        Source::Text(column) => Opened::Text(fast.str(column)?),
        Source::Json(column) => Opened::Json(
            fast.str(column)?,
            fast.u64_lenient_for_type(Some(&[ColumnType::I64, ColumnType::U64, ColumnType::F64]), column)?,
        ),
    })
}

impl Opened {
    fn rank(&self, doc: DocId, score: Score) -> Option<(u8, u64)> {
        match self {
            Self::Score => Some((0, float_key(f64::from(score)))),
            Self::Number(column) => Some((0, column.as_ref()?.first(doc)?)),
            Self::Text(column) => Some((0, column.as_ref()?.ords().first(doc)?)),
            Self::Json(text, number) => {
                let text = text.as_ref().and_then(|column| column.ords().first(doc)).map(|ord| (0, ord));
                text.or_else(|| Some((1, json_number_key(number.as_ref()?, doc)?)))
            }
        }
    }

    fn value(&self, (kind, rank): (u8, u64)) -> Option<Value> {
        match self {
            Self::Text(column) | Self::Json(column, _) if kind == 0 => {
                let mut text = String::new();
                column.as_ref()?.ord_to_str(rank, &mut text).ok()?.then_some(Value::Text(text))
            }
            _ => Some(Value::Number(rank)),
        }
    }
}

/// Numbers of JSON members are compared as floats, because segments may hold them in different types.
fn json_number_key((column, kind): &(Column<u64>, ColumnType), doc: DocId) -> Option<u64> {
    Some(float_key(json_number(*kind, column.first(doc)?)))
}

/// A number as a JSON column holds it.
#[expect(clippy::cast_precision_loss, reason = "JSON numbers are compared as floats")]
pub(crate) fn json_number(kind: ColumnType, stored: u64) -> f64 {
    match kind {
        ColumnType::U64 => stored as f64,
        ColumnType::I64 => super::order::int_of_key(stored) as f64,
        _ => super::order::float_of_key(stored),
    }
}

/// Collects one segment.
pub(crate) struct Segment {
    columns: Vec<Opened>,
    directions: SmallVec<[bool; 2]>,
    ids: Column<u64>,
    limit: usize,
    best: BinaryHeap<Candidate>,
    total: u64,
}

impl SegmentCollector for Segment {
    type Fruit = Page;

    fn collect(&mut self, doc: DocId, score: Score) {
        self.total += 1;
        let ranks: Ranks = self.columns.iter().map(|column| column.rank(doc, score)).collect();
        let id = self.ids.first(doc).unwrap_or_default();
        let candidate = Candidate { ranks, id, score, directions: self.directions.clone() };
        if self.best.len() < self.limit {
            self.best.push(candidate);
        } else if self.best.peek().is_some_and(|worst| candidate < *worst) {
            self.best.pop();
            self.best.push(candidate);
        }
    }

    fn harvest(self) -> Page {
        let columns = &self.columns;
        let found = self.best.into_iter().map(|candidate| Found {
            id: candidate.id,
            score: candidate.score,
            keys: columns.iter().zip(&candidate.ranks).map(|(c, rank)| c.value((*rank)?)).collect(),
        });
        Page { hits: found.collect(), total: self.total }
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.ranks, &other.ranks, &self.directions).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// All matching ids.
pub(crate) struct Ids;

impl Collector for Ids {
    type Fruit = Vec<u64>;
    type Child = IdsOfSegment;

    fn for_segment(&self, _: SegmentOrdinal, reader: &SegmentReader) -> tantivy::Result<IdsOfSegment> {
        Ok(IdsOfSegment { column: reader.fast_fields().u64("id")?, ids: Vec::new() })
    }

    fn requires_scoring(&self) -> bool {
        false
    }

    fn merge_fruits(&self, fruits: Vec<Vec<u64>>) -> tantivy::Result<Vec<u64>> {
        Ok(fruits.concat())
    }
}

/// Collects one segment's ids.
pub(crate) struct IdsOfSegment {
    column: Column<u64>,
    ids: Vec<u64>,
}

impl SegmentCollector for IdsOfSegment {
    type Fruit = Vec<u64>;

    fn collect(&mut self, doc: DocId, _: Score) {
        self.ids.extend(self.column.first(doc));
    }

    fn harvest(self) -> Vec<u64> {
        self.ids
    }
}
