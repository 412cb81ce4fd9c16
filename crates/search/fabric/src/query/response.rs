//! What a reader gets: plain data, the same for the in-process handle, gRPC and HTTP.

use serde::{Deserialize, Serialize};
use tidegate_core::{CommitTs, ResolvedTs};

/// How fresh and how complete an answer is. Every response carries it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Freshness {
    /// Every change committed at or below it is part of the answer (I12). Zero until every partition of the
    /// collection has reported progress.
    pub safe_ts: ResolvedTs,
    /// How far `safe_ts` lies behind this machine's clock, in milliseconds; `None` while it is zero.
    pub lag_ms: Option<u64>,
    /// Whether nothing is known to be missing.
    pub complete: bool,
    /// Why not, one entry per reason; empty when complete.
    pub incomplete: Vec<Incomplete>,
    /// The published state that answered; it grows with every publication.
    pub view: u64,
}

/// A reason why an answer may lack something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incomplete {
    /// A stable word: `no_progress`, `no_partitions`, `rejected`, `conflict`, `late_row`, `poisoned`.
    pub reason: String,
    /// The partition concerned, where it is one.
    pub partition: Option<String>,
    /// How many rows, where they can be counted.
    pub rows: u64,
}

/// A document as it was committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Its id.
    pub id: u64,
    /// Its version: the commit timestamp of the change that wrote it.
    pub version: CommitTs,
    /// The source partition that wrote it.
    pub partition: String,
    /// The schema version its row was encoded with.
    pub schema_version: u64,
    /// Its fields. JSON columns appear as JSON, vectors as lists of numbers, bytes as lower-case hex,
    /// decimals as their exact text, timestamps as microseconds since 1970 (UTC).
    pub fields: serde_json::Map<String, serde_json::Value>,
}

/// One search result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hit {
    /// The document.
    pub document: Document,
    /// Relevance, greatest first: BM25 for text, the similarity for vectors, the fused score for both;
    /// 0 where neither was asked for.
    pub score: f32,
    /// The text score, where that ranking took part and has the document.
    pub text_score: Option<f32>,
    /// The similarity of the vectors, where that ranking took part and has the document.
    pub similarity: Option<f32>,
    /// The passages that matched, where asked for.
    pub highlights: Vec<Highlight>,
}

/// A passage with its matching parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Highlight {
    /// The field, with dots inside JSON columns.
    pub field: String,
    /// The passage cut into pieces that alternate between plain and matching.
    pub pieces: Vec<Piece>,
}

/// A piece of a passage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The text.
    pub text: String,
    /// Whether it matched.
    pub hit: bool,
}

/// Counts of one field's values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facet {
    /// The field.
    pub field: String,
    /// Values with the number of matching documents that have them, most frequent first.
    pub values: Vec<FacetValue>,
    /// How many different values there are in total.
    pub distinct: u64,
}

/// One value of a facet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FacetValue {
    /// The value.
    pub value: serde_json::Value,
    /// Documents that have it.
    pub count: u64,
}

/// The answer to a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchResponse {
    /// The page of hits.
    pub hits: Vec<Hit>,
    /// How many documents match altogether. With a vector it is the number of neighbours considered.
    pub total: u64,
    /// The facets, in the order asked for.
    pub facets: Vec<Facet>,
    /// Where the next page continues; `None` at the end.
    pub next: Option<String>,
    /// How fresh the answer is.
    pub freshness: Freshness,
    /// Time spent searching, without waiting, in microseconds.
    pub took_us: u64,
}

/// The answer to a lookup by id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GetResponse {
    /// The document, if there is one.
    pub document: Option<Document>,
    /// If it was deleted and its tombstone is still kept: the commit timestamp of the delete.
    pub deleted_at: Option<CommitTs>,
    /// How fresh the answer is.
    pub freshness: Freshness,
}

/// The answer to a count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountResponse {
    /// Matching documents.
    pub count: u64,
    /// How fresh the answer is.
    pub freshness: Freshness,
}

/// A page of a scan in id order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanResponse {
    /// The documents.
    pub documents: Vec<Document>,
    /// Pass it as `after` to continue; `None` at the end.
    pub next: Option<u64>,
    /// How fresh the answer is.
    pub freshness: Freshness,
}
