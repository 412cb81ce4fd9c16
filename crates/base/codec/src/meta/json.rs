//! How the metadata's JSON differs from what serde expects by default.

use serde::{Deserialize, Deserializer};

/// A metadata record or DDL job that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} from JSON")]
pub struct MetaError {
    /// Which kind of record, such as `table info`.
    pub what: &'static str,
    /// The parser's reason with line and column; holds no row values.
    #[source]
    pub source: serde_json::Error,
}

impl tidegate_core::Diagnostic for MetaError {
    fn code(&self) -> &'static str {
        "TG-META-001"
    }

    fn class(&self) -> tidegate_core::ErrorClass {
        tidegate_core::ErrorClass::Corrupt
    }

    fn hint(&self) -> Option<std::borrow::Cow<'static, str>> {
        Some("check that the upstream's version is supported; the record is not in TiDB's format".into())
    }
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(what: &'static str, json: &'a [u8]) -> Result<T, MetaError> {
    serde_json::from_slice(json).map_err(|source| MetaError { what, source })
}

/// Go reads `null` into any field as "leave it zero"; so must we.
pub(crate) fn lenient<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// Lists: Go writes an empty one as `null`.
pub(crate) mod list {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer, T: Serialize>(list: &[T], to: S) -> Result<S::Ok, S::Error> {
        if list.is_empty() { to.serialize_none() } else { list.serialize(to) }
    }

    pub(crate) fn deserialize<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: Deserialize<'de>,
    {
        Ok(Option::<Vec<T>>::deserialize(from)?.unwrap_or_default())
    }
}

/// Byte fields: standard base64 with padding, `null` for none.
pub(crate) mod base64_bytes {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::borrow::Cow;

    pub(crate) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => to.serialize_str(&STANDARD.encode(bytes)),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
        let text = Option::<Cow<'de, str>>::deserialize(from)?;
        text.map(|text| STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)).transpose()
    }
}

/// Defines an enum that is a number in JSON, with `Other` for numbers of later versions, so that a record
/// with a new code can still be read and written back.
macro_rules! number_enum {
    (
        $(#[$doc:meta])*
        pub enum $name:ident: $repr:ty {
            $( $(#[$variant_doc:meta])* $variant:ident = $number:literal, )+
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $( $(#[$variant_doc])* $variant, )+
            /// A number this version does not know.
            Other($repr),
        }

        impl $name {
            /// The number that stands for it in JSON.
            pub const fn number(self) -> $repr {
                match self {
                    $( Self::$variant => $number, )+
                    Self::Other(number) => number,
                }
            }

            /// What `number` stands for.
            pub const fn from_number(number: $repr) -> Self {
                match number {
                    $( $number => Self::$variant, )+
                    other => Self::Other(other),
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::from_number(0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                self.number().serialize(to)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Ok(Self::from_number(Option::<$repr>::deserialize(from)?.unwrap_or(0)))
            }
        }
    };
}
pub(crate) use number_enum;
