//! Case-insensitive names.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};

/// A name of a database, table, column or index: shown as the user wrote it, compared in lower case
/// (`reference/tidb-schema-and-ddl.md` §1.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct CiName {
    /// As written by the user.
    #[serde(rename = "O")]
    pub original: String,
    /// In lower case.
    #[serde(rename = "L")]
    pub lower: String,
}

impl CiName {
    /// The name as written by the user.
    pub fn as_str(&self) -> &str {
        &self.original
    }

    /// Whether no name was given.
    pub fn is_empty(&self) -> bool {
        self.lower.is_empty()
    }

    /// Whether `name` means the same object, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.lower == name || self.lower == name.to_lowercase()
    }
}

impl fmt::Display for CiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.original)
    }
}

impl From<String> for CiName {
    fn from(original: String) -> Self {
        Self { lower: original.to_lowercase(), original }
    }
}

impl From<&str> for CiName {
    fn from(original: &str) -> Self {
        original.to_owned().into()
    }
}

impl<'de> Deserialize<'de> for CiName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NameVisitor)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier)]
enum NameKey {
    #[serde(alias = "o")]
    O,
    #[serde(alias = "l")]
    L,
    #[serde(other)]
    Unknown,
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = CiName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name as string or as {\"O\", \"L\"}")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<CiName, E> {
        Ok(name.into())
    }

    fn visit_unit<E: Error>(self) -> Result<CiName, E> {
        Ok(CiName::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CiName, A::Error> {
        let mut name = CiName::default();
        while let Some(key) = map.next_key()? {
            match key {
                NameKey::O => name.original = map.next_value()?,
                NameKey::L => name.lower = map.next_value()?,
                NameKey::Unknown => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(if name.lower.is_empty() { name.original.into() } else { name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_from_an_object_a_bare_string_and_null() {
        let read = |json: &str| serde_json::from_str::<CiName>(json).expect("valid name");
        let name = CiName { original: "MyTable".into(), lower: "mytable".into() };
        assert_eq!(read(r#"{"O":"MyTable","L":"mytable"}"#), name);
        assert_eq!(read(r#""MyTable""#), name);
        assert!(read("null").is_empty());
    }

    #[test]
    fn names_compare_in_lower_case_and_show_as_written() {
        let name = CiName::from("Straße");
        assert!(name.is("straße") && name.is("STRAßE") && !name.is("strasse"));
        assert_eq!(name.to_string(), "Straße");
        assert_eq!(serde_json::to_string(&name).expect("a name is JSON"), r#"{"O":"Straße","L":"straße"}"#);
    }
}
