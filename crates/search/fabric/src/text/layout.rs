//! How a collection's fields lie in the index. Everything is keyed by field id, so that renaming a column
//! leaves the index as it is; anything else that changes the layout gets a new index.

use std::collections::BTreeMap;

use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, JsonObjectOptions, Schema, SchemaBuilder, TextFieldIndexing,
    TextOptions,
};
use tidegate_contract::fingerprint::Fingerprint;
use tidegate_proto::searchfabric::v1::{
    FieldSchema, ScalarFieldType, TextAnalysis, VectorMetric, field_schema,
};

use crate::catalog::Lineage;
use crate::vector::Metric;

/// Names of the analyses in tantivy's registry.
pub(crate) const WORDS: &str = "tidegate-words";
pub(crate) const INNER: &str = "tidegate-inner";
pub(crate) const RAW: &str = "raw";

/// Bytes of a value that the exact column keeps; a longer value is cut and made unique by its hash. Equality
/// and order stay right, except that the order of values that agree so far is arbitrary.
pub(crate) const EXACT_BYTES_MAX: usize = 256;

/// Languages that write compounds as one word, so that a part must be findable inside (BCP 47 primary tags).
const COMPOUNDING: [&str; 12] = ["de", "nl", "da", "sv", "no", "nb", "nn", "fi", "hu", "is", "et", "af"];

/// What a field's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int,
    UInt,
    Float,
    Timestamp,
    Decimal,
    Text,
    Bytes,
    Json,
    Vector { dimensions: usize, metric: Metric },
}

/// How a text field is analysed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Analysis {
    /// The whole value is one word.
    pub(crate) keyword: bool,
    language: String,
    path_languages: BTreeMap<String, String>,
}

impl Analysis {
    fn new(text: &TextAnalysis) -> Self {
        let path_languages = text.path_languages.clone().into_iter().collect();
        Self { keyword: text.keyword, language: text.language.clone(), path_languages }
    }

    /// Whether parts of words must be findable at `path` (empty for the field itself). A member of a JSON
    /// column whose name is a language is taken to be in it, unless the schema says otherwise.
    pub(crate) fn has_inner(&self, path: &str) -> bool {
        let last = path.rsplit('.').next().unwrap_or_default();
        let given = self.path_languages.get(path).map(String::as_str);
        let language = match given {
            Some(language) => language,
            None if is_compounding(last) => last,
            None => self.language.as_str(),
        };
        !self.keyword && is_compounding(language)
    }
}

fn is_compounding(language: &str) -> bool {
    let primary = language.split(['-', '_']).next().unwrap_or_default();
    COMPOUNDING.iter().any(|known| known.eq_ignore_ascii_case(primary))
}

/// One field and its columns.
#[derive(Clone, Debug)]
pub(crate) struct FieldPlan {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Present = words can be looked for in it.
    pub(crate) analysis: Option<Analysis>,
    /// Order-preserving keys of numbers.
    pub(crate) number: Option<Field>,
    /// Whole values, and order-preserving keys of decimals.
    pub(crate) exact: Option<Field>,
    pub(crate) words: Option<Field>,
    pub(crate) inner: Option<Field>,
}

/// The columns of an index.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) schema: Schema,
    pub(crate) fields: Vec<FieldPlan>,
    /// The document's id.
    pub(crate) id: Field,
    /// The document's version.
    pub(crate) version: Field,
    /// One term for each field or JSON path that is present and not null; those with text twice, the second
    /// time behind [`TEXT_PATH`].
    pub(crate) has: Field,
    /// JSON columns, under the field's id as their first path segment.
    pub(crate) json_exact: Field,
    pub(crate) json_words: Field,
    pub(crate) json_inner: Field,
    /// Names this layout; two equal ones may share an index.
    pub(crate) digest: String,
}

/// Marks terms of [`Layout::has`] that name a path with text. Field ids are numbers, so it cannot be one.
pub(crate) const TEXT_PATH: &str = "t:";

/// The first path segment of a JSON column, and the name by which [`Layout::has`] knows a field.
pub(crate) fn root(field_id: i64) -> String {
    field_id.to_string()
}

fn text_options(tokenizer: &str, record: IndexRecordOption) -> TextOptions {
    let norms = record.has_positions();
    let indexing =
        TextFieldIndexing::default().set_tokenizer(tokenizer).set_index_option(record).set_fieldnorms(norms);
    TextOptions::default().set_indexing_options(indexing)
}

fn exact_options() -> TextOptions {
    text_options(RAW, IndexRecordOption::Basic).set_fast(RAW)
}

fn json_options(tokenizer: &str, record: IndexRecordOption) -> JsonObjectOptions {
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(tokenizer)
        .set_index_option(record)
        .set_fieldnorms(record.has_positions());
    JsonObjectOptions::default().set_indexing_options(indexing)
}

impl Layout {
    /// The layout of a collection. It depends on the values that documents older than a field hold for it,
    /// and not on names.
    pub(crate) fn new(lineage: &Lineage) -> Self {
        let positions = IndexRecordOption::WithFreqsAndPositions;
        let mut builder = Schema::builder();
        let id = builder.add_u64_field("id", INDEXED | FAST);
        let version = builder.add_u64_field("version", FAST);
        let has = builder.add_text_field("has", text_options(RAW, IndexRecordOption::Basic));
        let json_exact =
            builder.add_json_field("jx", json_options(RAW, IndexRecordOption::Basic).set_fast(RAW));
        let json_words = builder.add_json_field("jw", json_options(WORDS, positions));
        let json_inner = builder.add_json_field("ji", json_options(INNER, positions));
        let mut described = String::new();
        let mut fields = Vec::new();
        for field in &lineage.definition.fields {
            let Some(plan) = FieldPlan::new(field, &mut builder) else { continue };
            let fill = lineage.fill(plan.id, 0);
            described += &format!("{} {:?} {:?} {fill:?};", plan.id, field.r#type, plan.analysis);
            fields.push(plan);
        }
        let digest = Fingerprint::of(described.as_bytes()).to_string().chars().take(16).collect();
        let schema = builder.build();
        Self { schema, fields, id, version, has, json_exact, json_words, json_inner, digest }
    }

    /// The field with this id.
    pub(crate) fn field(&self, id: i64) -> Option<&FieldPlan> {
        self.fields.iter().find(|plan| plan.id == id)
    }

    /// The field that an address names, and the path below it for members of JSON columns. A field whose own
    /// name has dots is preferred to a member.
    pub(crate) fn resolve<'a>(&self, address: &'a str) -> Option<(&FieldPlan, &'a str)> {
        if let Some(plan) = self.fields.iter().find(|plan| plan.name == address) {
            return Some((plan, ""));
        }
        address.match_indices('.').find_map(|(at, _)| {
            let (name, path) = (address.get(..at)?, address.get(at + 1..)?);
            let plan = self.fields.iter().find(|plan| plan.name == name && plan.kind == Kind::Json)?;
            Some((plan, path))
        })
    }
}

impl FieldPlan {
    fn new(field: &FieldSchema, builder: &mut SchemaBuilder) -> Option<Self> {
        let kind = kind_of(field.r#type.as_ref()?)?;
        let analysis = field.text.as_ref().map(Analysis::new);
        let mut plan = Self {
            id: field.field_id,
            name: field.name.clone(),
            kind,
            analysis,
            number: None,
            exact: None,
            words: None,
            inner: None,
        };
        let name = |column: &str| format!("{column}{}", field.field_id);
        match kind {
            Kind::Bool | Kind::Int | Kind::UInt | Kind::Float | Kind::Timestamp => {
                plan.number = Some(builder.add_u64_field(&name("n"), INDEXED | FAST));
            }
            Kind::Text | Kind::Decimal | Kind::Bytes => {
                plan.exact = Some(builder.add_text_field(&name("x"), exact_options()));
            }
            Kind::Json | Kind::Vector { .. } => {}
        }
        if let (Kind::Text, Some(analysis)) = (kind, &plan.analysis) {
            let tokenizer = if analysis.keyword { KEYWORD } else { WORDS };
            let positions = IndexRecordOption::WithFreqsAndPositions;
            plan.words = Some(builder.add_text_field(&name("w"), text_options(tokenizer, positions)));
            if analysis.has_inner("") {
                plan.inner = Some(builder.add_text_field(&name("i"), text_options(INNER, positions)));
            }
        }
        Some(plan)
    }
}

/// The analysis of keywords: the whole value, lower-cased.
pub(crate) const KEYWORD: &str = "tidegate-keyword";

fn kind_of(declared: &field_schema::Type) -> Option<Kind> {
    match declared {
        field_schema::Type::Scalar(scalar) | field_schema::Type::ListOf(scalar) => scalar_kind(*scalar),
        field_schema::Type::ObjectArray(_) => Some(Kind::Json),
        field_schema::Type::Vector(spec) => Some(Kind::Vector {
            dimensions: usize::try_from(spec.dimensions).ok()?,
            metric: match spec.metric() {
                VectorMetric::Unspecified | VectorMetric::Cosine => Metric::Cosine,
                VectorMetric::Dot => Metric::Dot,
                VectorMetric::L2 => Metric::L2,
            },
        }),
    }
}

fn scalar_kind(scalar: i32) -> Option<Kind> {
    Some(match ScalarFieldType::try_from(scalar).ok()? {
        ScalarFieldType::Unspecified => return None,
        ScalarFieldType::Bool => Kind::Bool,
        ScalarFieldType::Int64 => Kind::Int,
        ScalarFieldType::Uint64 => Kind::UInt,
        ScalarFieldType::Float | ScalarFieldType::Double => Kind::Float,
        ScalarFieldType::String => Kind::Text,
        ScalarFieldType::Bytes => Kind::Bytes,
        ScalarFieldType::Timestamp => Kind::Timestamp,
        ScalarFieldType::Decimal => Kind::Decimal,
        ScalarFieldType::Json => Kind::Json,
    })
}
