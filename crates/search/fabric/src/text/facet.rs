//! Counts of a field's values over all matching documents.

use hashbrown::HashMap;
use tantivy::collector::{Collector, SegmentCollector};
use tantivy::columnar::{Column, ColumnType, StrColumn};
use tantivy::{DocId, Score, SegmentOrdinal, SegmentReader};

use super::top::json_number;

/// A counted value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Counted {
    /// Text, or the key of a decimal.
    Text(String),
    /// The order-preserving key of a number.
    Number(u64),
    /// A number of a JSON member, as the bits of a float.
    Json(u64),
    /// A truth value of a JSON member.
    Bool(bool),
}

/// Counts the values of one column.
pub(crate) struct Count {
    pub(crate) column: String,
    /// Whether the column belongs to a JSON member.
    pub(crate) json: bool,
}

/// Counts of one segment.
pub(crate) struct Segment {
    text: Option<StrColumn>,
    ords: Vec<u64>,
    number: Option<(Column<u64>, ColumnType)>,
    truth: Option<Column<u64>>,
    numbers: HashMap<u64, u64>,
    truths: [u64; 2],
    json: bool,
    seen: Vec<u64>,
}

impl Collector for Count {
    type Fruit = HashMap<Counted, u64>;
    type Child = Segment;

    fn for_segment(&self, _: SegmentOrdinal, reader: &SegmentReader) -> tantivy::Result<Segment> {
        let fast = reader.fast_fields();
        let text = fast.str(&self.column)?;
        let numeric = [ColumnType::U64, ColumnType::I64, ColumnType::F64];
        let truth = fast.u64_lenient_for_type(Some(&[ColumnType::Bool]), &self.column)?;
        Ok(Segment {
            ords: text.as_ref().map_or_else(Vec::new, |column| vec![0; column.num_terms()]),
            text,
            number: fast.u64_lenient_for_type(Some(&numeric), &self.column)?,
            truth: truth.map(|(column, _)| column),
            numbers: HashMap::new(),
            truths: [0; 2],
            json: self.json,
            seen: Vec::new(),
        })
    }

    fn requires_scoring(&self) -> bool {
        false
    }

    fn merge_fruits(&self, fruits: Vec<HashMap<Counted, u64>>) -> tantivy::Result<HashMap<Counted, u64>> {
        let mut merged = HashMap::new();
        for (value, count) in fruits.into_iter().flatten() {
            *merged.entry(value).or_default() += count;
        }
        Ok(merged)
    }
}

impl SegmentCollector for Segment {
    type Fruit = HashMap<Counted, u64>;

    fn collect(&mut self, doc: DocId, _: Score) {
        if let Some(column) = &self.text {
            // A document that has a value twice counts once.
            self.seen.clear();
            self.seen.extend(column.term_ords(doc));
            self.seen.sort_unstable();
            self.seen.dedup();
            for ord in &self.seen {
                let slot = usize::try_from(*ord).ok().and_then(|ord| self.ords.get_mut(ord));
                if let Some(count) = slot {
                    *count += 1;
                }
            }
        }
        if let Some((column, kind)) = &self.number {
            for stored in column.values_for_doc(doc) {
                let key = if self.json { json_number(*kind, stored).to_bits() } else { stored };
                *self.numbers.entry(key).or_default() += 1;
            }
        }
        if let Some(stored) = self.truth.as_ref().and_then(|column| column.first(doc)) {
            let [no, yes] = &mut self.truths;
            *(if stored == 0 { no } else { yes }) += 1;
        }
    }

    fn harvest(self) -> HashMap<Counted, u64> {
        let mut counts = HashMap::new();
        if let Some(column) = &self.text {
            for (ord, count) in (0..).zip(&self.ords).filter(|(_, count)| **count > 0) {
                let mut text = String::new();
                if column.ord_to_str(ord, &mut text).unwrap_or(false) {
                    counts.insert(Counted::Text(text), *count);
                }
            }
        }
        let number = |key| if self.json { Counted::Json(key) } else { Counted::Number(key) };
        counts.extend(self.numbers.into_iter().map(|(key, count)| (number(key), count)));
        for (truth, count) in [false, true].into_iter().zip(self.truths).filter(|(_, count)| *count > 0) {
            counts.insert(Counted::Bool(truth), count);
        }
        counts
    }
}
