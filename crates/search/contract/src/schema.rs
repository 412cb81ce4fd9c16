//! Collection schemas: rules of a definition, the compiled form that checks rows, and the difference between
//! two definitions.

mod definition;
mod diff;
mod row;

use hashbrown::HashMap;
use tidegate_proto::searchfabric::v1::{
    CollectionSchemaDefinition, ObjectTypeSpec, ScalarFieldType, VectorElement, VectorTypeSpec, field_schema,
};

pub use definition::check_definition;
pub use diff::{check_successor, classify};

use crate::error::{Breach, SfErrorCode};

/// The token that stands for "no generation yet" in the fence of a collection's first schema
/// (`spec/mini-cdc.md` §5.5).
pub const INITIAL_GENERATION: &str = "__initial__";

/// A definition compiled for checking rows. Cheap to share behind an `Arc`; lookups do not allocate.
#[derive(Clone, Debug)]
pub struct Schema {
    fields: HashMap<String, FieldRule>,
    doc_id_field: String,
}

/// What values a field admits.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldRule {
    /// The shape of its values.
    pub shape: FieldShape,
    /// Whether null is a value.
    pub nullable: bool,
}

/// The shape of a field's values.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldShape {
    /// One scalar.
    Scalar(ScalarFieldType),
    /// A vector.
    Vector {
        /// How many elements it has.
        dimensions: u32,
        /// Which carrier it uses.
        element: VectorElement,
    },
    /// A list of scalars.
    List(ScalarFieldType),
    /// A list of flat objects; types by member.
    ObjectArray(HashMap<String, ScalarFieldType>),
}

impl Schema {
    /// Checks and compiles a definition.
    ///
    /// # Errors
    /// As [`check_definition`].
    pub fn new(definition: &CollectionSchemaDefinition) -> Result<Self, Breach> {
        check_definition(definition)?;
        let mut fields = HashMap::with_capacity(definition.fields.len());
        for field in &definition.fields {
            let shape = field.r#type.as_ref().and_then(FieldShape::new);
            let shape = shape.ok_or_else(|| invalid("fields", "has a field without type"))?;
            fields.insert(field.name.clone(), FieldRule { shape, nullable: field.nullable });
        }
        let doc_id_field =
            definition.doc_id_mapping.as_ref().map_or_else(String::new, |m| m.source_field.clone());
        Ok(Self { fields, doc_id_field })
    }

    /// The rule of the field `name`; `None` if it is not declared.
    pub fn field(&self, name: &str) -> Option<&FieldRule> {
        self.fields.get(name)
    }

    /// The field that holds the document's identity.
    pub fn doc_id_field(&self) -> &str {
        &self.doc_id_field
    }
}

impl FieldShape {
    /// The shape that a declared type means; `None` when the type is incomplete.
    pub fn new(declared: &field_schema::Type) -> Option<Self> {
        Some(match declared {
            field_schema::Type::Scalar(scalar) => Self::Scalar(scalar_type(*scalar)?),
            field_schema::Type::ListOf(scalar) => Self::List(scalar_type(*scalar)?),
            field_schema::Type::Vector(spec) => Self::vector(*spec)?,
            field_schema::Type::ObjectArray(spec) => Self::object_array(spec)?,
        })
    }

    fn vector(spec: VectorTypeSpec) -> Option<Self> {
        let element = VectorElement::try_from(spec.element).ok()?;
        let known = spec.dimensions > 0 && element != VectorElement::Unspecified;
        known.then_some(Self::Vector { dimensions: spec.dimensions, element })
    }

    fn object_array(spec: &ObjectTypeSpec) -> Option<Self> {
        let types = spec.members.iter().map(|(name, scalar)| Some((name.clone(), scalar_type(*scalar)?)));
        types.collect::<Option<_>>().map(Self::ObjectArray)
    }
}

/// The scalar type with this number; `None` when it is unspecified or unknown.
fn scalar_type(number: i32) -> Option<ScalarFieldType> {
    ScalarFieldType::try_from(number).ok().filter(|t| *t != ScalarFieldType::Unspecified)
}

fn invalid(path: impl Into<String>, detail: impl Into<std::borrow::Cow<'static, str>>) -> Breach {
    Breach::new(SfErrorCode::SfSchemaInvalid, path, detail)
}

#[cfg(test)]
pub(crate) mod fixture {
    //! A small definition that tests start from.

    use tidegate_proto::searchfabric::v1::{
        CollectionSchemaDefinition, CollectionTruthMode, DocIdMapping, FieldSchema, ScalarFieldType,
        SourcePartition, UndeclaredFieldPolicy, VectorElement, VectorMetric, VectorTypeSpec,
        field_schema::Type,
    };

    pub(crate) fn scalar(id: i64, name: &str, scalar: ScalarFieldType) -> FieldSchema {
        FieldSchema {
            name: name.to_owned(),
            field_id: id,
            r#type: Some(Type::Scalar(scalar.into())),
            ..FieldSchema::default()
        }
    }

    /// `id` (u64, identity), `label` (nullable string), `meta` (JSON), `v` (3 dimensions, nullable), from
    /// `table:7`.
    pub(crate) fn definition() -> CollectionSchemaDefinition {
        let vector = VectorTypeSpec {
            dimensions: 3,
            element: VectorElement::F32.into(),
            metric: VectorMetric::Cosine.into(),
        };
        let v = FieldSchema {
            name: "v".to_owned(),
            field_id: 4,
            r#type: Some(Type::Vector(vector)),
            nullable: true,
            ..FieldSchema::default()
        };
        let label = FieldSchema { nullable: true, ..scalar(2, "label", ScalarFieldType::String) };
        CollectionSchemaDefinition {
            name: "demo.emoji".to_owned(),
            truth_mode: CollectionTruthMode::External.into(),
            doc_id_mapping: Some(DocIdMapping {
                source_field: "id".to_owned(),
                r#type: ScalarFieldType::Uint64.into(),
            }),
            fields: vec![
                scalar(1, "id", ScalarFieldType::Uint64),
                label,
                scalar(3, "meta", ScalarFieldType::Json),
                v,
            ],
            undeclared_field_policy: UndeclaredFieldPolicy::Reject.into(),
            source_partitions: vec![SourcePartition { source_partition: "table:7".to_owned(), start_ts: 10 }],
            ..CollectionSchemaDefinition::default()
        }
    }
}
