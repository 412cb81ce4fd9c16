//! Column types to field types: the table of `spec/cdc-adapter.md` §4.1.

use tidegate_codec::meta::{FieldType, SqlType};
use tidegate_contract::limits::VECTOR_DIMENSIONS_MAX;
use tidegate_proto::searchfabric::v1::{
    ScalarFieldType, TextAnalysis, VectorElement, VectorMetric, VectorTypeSpec, field_schema::Type,
};

/// CHAR columns up to this length are codes (`SEA`, `DE`), not prose: searched as one word.
const CODE_CHARS_MAX: i64 = 8;

/// Why a column type has no place in the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeError {
    /// The metadata names a type that rows cannot have.
    #[error("type {0:?} cannot be in a row")]
    NoRowType(SqlType),
}

/// The field type of a column.
pub(super) fn field_type(column: &FieldType) -> Result<Type, TypeError> {
    use ScalarFieldType as S;
    use SqlType as T;
    let scalar = match column.tp {
        T::TinyInt | T::SmallInt | T::MediumInt | T::Int | T::BigInt if column.unsigned() => S::Uint64,
        T::TinyInt | T::SmallInt | T::MediumInt | T::Int | T::BigInt | T::Year | T::Time => S::Int64,
        T::Bit => S::Uint64,
        T::Float => S::Float,
        T::Double => S::Double,
        T::Decimal => S::Decimal,
        T::Timestamp | T::DateTime | T::Date | T::NewDate => S::Timestamp,
        T::Json => S::Json,
        T::Enum | T::Set => S::String,
        T::Vector => return Ok(vector_type(column.flen)),
        t if (t.is_char() || t.is_blob()) && column.is_binary() => S::Bytes,
        t if t.is_char() || t.is_blob() => S::String,
        other => return Err(TypeError::NoRowType(other)),
    };
    Ok(Type::Scalar(scalar.into()))
}

/// A vector column without a fixed dimension cannot be compared, so it travels as a list of numbers.
fn vector_type(flen: i64) -> Type {
    match u32::try_from(flen) {
        Ok(dimensions) if (1..=VECTOR_DIMENSIONS_MAX).contains(&dimensions) => Type::Vector(VectorTypeSpec {
            dimensions,
            element: VectorElement::F32.into(),
            metric: VectorMetric::Cosine.into(),
        }),
        _ => Type::ListOf(ScalarFieldType::Float.into()),
    }
}

/// How a column is searched as text when nothing is configured; `None` = not at all.
pub(super) fn text_analysis(column: &FieldType) -> Option<TextAnalysis> {
    let keyword = match column.tp {
        SqlType::Enum | SqlType::Set => true,
        SqlType::Char if !column.is_binary() => column.flen <= CODE_CHARS_MAX,
        SqlType::Json => false,
        t if (t.is_char() || t.is_blob()) && !column.is_binary() => false,
        _ => return None,
    };
    Some(TextAnalysis { keyword, ..TextAnalysis::default() })
}

#[cfg(test)]
mod tests {
    use tidegate_codec::meta::{ColumnFlags, ColumnInfo};

    use super::*;

    fn column(tp: SqlType, flags: ColumnFlags, flen: i64, decimal: i64, charset: &str) -> ColumnInfo {
        let field_type =
            FieldType { tp, flags, flen, decimal, charset: charset.to_owned(), ..FieldType::default() };
        ColumnInfo { field_type, ..ColumnInfo::default() }
    }

    /// The rows of the table in `spec/cdc-adapter.md` §4.1, with the source type in MySQL's words.
    #[test]
    fn every_source_family_has_its_carrier() {
        use ScalarFieldType as S;
        use SqlType as T;
        let none = ColumnFlags::default();
        let unsigned = ColumnFlags::UNSIGNED;
        let cases = [
            (column(T::BigInt, none, 20, 0, "binary"), "bigint", S::Int64),
            (column(T::BigInt, unsigned, 20, 0, "binary"), "bigint unsigned", S::Uint64),
            (column(T::TinyInt, unsigned, 3, 0, "binary"), "tinyint unsigned", S::Uint64),
            (column(T::Float, none, 12, -1, "binary"), "float", S::Float),
            (column(T::Double, none, 22, -1, "binary"), "double", S::Double),
            (column(T::Decimal, none, 4, 1, "binary"), "decimal(4,1)", S::Decimal),
            (column(T::Timestamp, none, 26, 6, "binary"), "timestamp(6)", S::Timestamp),
            (column(T::DateTime, none, 19, 0, "binary"), "datetime", S::Timestamp),
            (column(T::Date, none, 10, 0, "binary"), "date", S::Timestamp),
            (column(T::Json, none, -1, 0, "binary"), "json", S::Json),
            (column(T::VarChar, none, 200, 0, "utf8mb4"), "varchar(200)", S::String),
            (column(T::Blob, none, 65535, 0, "utf8mb4"), "text", S::String),
            (column(T::VarChar, none, 16, 0, "binary"), "varbinary(16)", S::Bytes),
            (column(T::LongBlob, none, -1, 0, "binary"), "longblob", S::Bytes),
            (column(T::Bit, unsigned, 9, 0, "binary"), "bit(9)", S::Uint64),
            (column(T::Year, unsigned, 4, 0, "binary"), "year", S::Int64),
            (column(T::Time, none, 10, 0, "binary"), "time", S::Int64),
        ];
        for (column, text, scalar) in cases {
            assert_eq!(field_type(&column.field_type), Ok(Type::Scalar(scalar.into())), "{text}");
        }
    }

    #[test]
    fn a_vector_needs_a_fixed_dimension_to_be_a_vector() {
        let vector =
            |flen| field_type(&column(SqlType::Vector, ColumnFlags::default(), flen, 0, "binary").field_type);
        assert!(matches!(vector(64), Ok(Type::Vector(spec)) if spec.dimensions == 64));
        assert_eq!(vector(-1), Ok(Type::ListOf(ScalarFieldType::Float.into())));
    }

    #[test]
    fn prose_is_analysed_and_codes_are_words() {
        let analysis = |tp, flen, charset| {
            text_analysis(&column(tp, ColumnFlags::default(), flen, 0, charset).field_type).map(|t| t.keyword)
        };
        assert_eq!(analysis(SqlType::VarChar, 128, "utf8mb4"), Some(false));
        assert_eq!(analysis(SqlType::Char, 4, "utf8mb4"), Some(true));
        assert_eq!(analysis(SqlType::Enum, 10, "utf8mb4"), Some(true));
        assert_eq!(analysis(SqlType::Json, -1, "binary"), Some(false));
        assert_eq!(analysis(SqlType::Blob, -1, "binary"), None);
        assert_eq!(analysis(SqlType::BigInt, 20, "binary"), None);
    }
}
