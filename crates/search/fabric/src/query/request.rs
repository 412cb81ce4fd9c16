//! What a reader may ask: plain data, the same for the in-process handle, gRPC and HTTP.

use serde::{Deserialize, Serialize};
use tidegate_core::Ts;

use crate::vector::Metric;

/// How many hits one page may hold. A page is materialised in memory and sent as one message; a thousand
/// documents of a few kilobytes each stay below gRPC's customary 4 MiB.
pub const LIMIT_MAX: usize = 1_000;
/// The default page size.
pub const LIMIT_DEFAULT: usize = 10;
/// Most neighbours one vector query may consider; each is kept in a heap while vectors are scanned.
pub const NEIGHBOURS_MAX: usize = 10_000;
/// How long a read waits for freshness at most: the longest that callers are expected to stay connected for.
pub const WAIT_MAX_MS: u64 = 60_000;

/// One search over one collection. Text, vector and filter may be combined freely: a filter alone lists
/// documents, text and vector together are fused by reciprocal rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchRequest {
    /// The collection's name, such as `demo.emoji`.
    pub collection: String,
    /// Words to look for.
    pub text: Option<TextQuery>,
    /// Nearest neighbours of a vector.
    pub vector: Option<VectorClause>,
    /// Only documents that satisfy it.
    pub filter: Option<Filter>,
    /// Order of the hits; empty means by score, and by document id without a score.
    pub sort: Vec<Sort>,
    /// Counts of values among all matching documents.
    pub facets: Vec<FacetRequest>,
    /// How many hits to return, at most [`LIMIT_MAX`]; 0 means [`LIMIT_DEFAULT`].
    pub limit: usize,
    /// Continue where an earlier response of the same request ended; it gave this token in `next`. All pages
    /// come from one state.
    pub page_token: Option<String>,
    /// Whether hits carry the passages that matched.
    pub highlight: bool,
    /// How text and vector rankings are fused.
    pub fusion: Fusion,
    /// How fresh the answer must be.
    pub read: ReadOptions,
}

/// Words to look for. The text may use a little language: `word`, `"a phrase"`, `pre*`, `fuzy~1`, `-not`,
/// `field:word`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextQuery {
    /// The words.
    pub text: String,
    /// Which fields the words are looked for in; empty means every text field. A JSON column's inner
    /// fields are named with dots: `names.de`.
    pub fields: Vec<BoostedField>,
    /// Whether one matching word is enough; otherwise every word must match.
    pub any: bool,
    /// By how many letters every word may differ: 0, 1 or 2.
    pub fuzziness: u8,
    /// Whether the words must follow one another.
    pub phrase: bool,
    /// Whether the last word may be the beginning of a longer one (search as you type).
    pub prefix: bool,
}

impl TextQuery {
    /// A query for these words in every text field.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// The same query in one field only.
    #[must_use]
    pub fn within(mut self, field: impl Into<String>) -> Self {
        self.fields.push(BoostedField { field: field.into(), boost: 1.0 });
        self
    }
}

/// A field and how much a match in it counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoostedField {
    /// The field.
    pub field: String,
    /// 1 is neutral.
    #[serde(default = "neutral")]
    pub boost: f32,
}

const fn neutral() -> f32 {
    1.0
}

/// How text and vector rankings become one (reciprocal rank fusion): a document at rank `r` of a ranking adds
/// `weight / (rank_constant + r)` to its score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fusion {
    /// Damps the advantage of the very first ranks.
    pub rank_constant: u32,
    /// Weight of the text ranking.
    pub text_weight: f32,
    /// Weight of the vector ranking.
    pub vector_weight: f32,
}

impl Default for Fusion {
    /// 60 is the constant of the original publication of the method (Cormack et al., 2009).
    fn default() -> Self {
        Self { rank_constant: 60, text_weight: 1.0, vector_weight: 1.0 }
    }
}

/// Nearest neighbours of a vector, or of a document's own vector ("more like this").
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VectorClause {
    /// The vector field; may be left out where the collection has exactly one.
    pub field: Option<String>,
    /// The query vector. Exactly one of `values` and `like` must be given.
    pub values: Option<Vec<f32>>,
    /// Use this document's vector, and leave the document itself out of the answer.
    pub like: Option<u64>,
    /// How many neighbours to consider, at most [`NEIGHBOURS_MAX`]; 0 means the page's `limit`.
    pub k: usize,
    /// The metric; `None` means the field's own.
    pub metric: Option<Metric>,
}

/// How fresh an answer must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadOptions {
    /// Wait until the collection's `safe_ts` has reached this timestamp.
    pub at_least: Option<Ts>,
    /// Refuse an answer whose `safe_ts` lies further behind the clock than this.
    pub staleness_max_ms: Option<u64>,
    /// How long to wait for either, at most [`WAIT_MAX_MS`]; 0 means not at all.
    pub wait_ms: u64,
}

/// A condition on a document. Fields of JSON columns are named with dots (`names.de`); a list field
/// satisfies a condition if any of its elements does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// All of them hold; true if empty.
    And(Vec<Filter>),
    /// At least one holds; false if empty.
    Or(Vec<Filter>),
    /// It does not hold.
    Not(Box<Filter>),
    /// The field has exactly this value.
    Eq {
        /// Field.
        field: String,
        /// Value.
        value: Literal,
    },
    /// The field has one of these values.
    In {
        /// Field.
        field: String,
        /// Values.
        values: Vec<Literal>,
    },
    /// The field lies in a range; an absent bound is open.
    Range {
        /// Field.
        field: String,
        /// Lower bound and whether it belongs to the range.
        from: Option<Edge>,
        /// Upper bound and whether it belongs to the range.
        to: Option<Edge>,
    },
    /// The field is present and not null.
    Exists {
        /// Field.
        field: String,
    },
    /// The text matches inside the given field, as in [`SearchRequest::text`].
    Match {
        /// Field.
        field: String,
        /// Words.
        text: String,
    },
    /// The document has one of these ids.
    Ids(Vec<u64>),
}

/// One end of a range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// The value.
    pub value: Literal,
    /// Whether the value itself lies inside the range.
    pub inclusive: bool,
}

/// A value as a person writes it; the field's type says how it is read. Numbers may be given as text, which
/// is the only lossless way for decimals and for integers beyond 2^53 from JavaScript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Literal {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number from 0 on.
    UInt(u64),
    /// A negative whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
}

/// One sort key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sort {
    /// A sortable field, `_id`, `_version` or `_score`.
    pub field: String,
    /// Greatest first. Documents without the field come last either way.
    #[serde(default)]
    pub descending: bool,
}

/// Asks for the most frequent values of a field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FacetRequest {
    /// The field.
    pub field: String,
    /// How many values at most; 0 means 10.
    #[serde(default)]
    pub limit: usize,
}

/// Walks over documents in id order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScanRequest {
    /// The collection's name.
    pub collection: String,
    /// Start after this id; `None` starts at the beginning.
    pub after: Option<u64>,
    /// How many documents at most; 0 means [`LIMIT_MAX`].
    pub limit: usize,
    /// How fresh the answer must be.
    pub read: ReadOptions,
}
