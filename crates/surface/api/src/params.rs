//! A search in query parameters: what a person types behind a question mark.

use serde::Deserialize;
use tidegate_core::Ts;
use tidegate_fabric::query::request::{
    FacetRequest, Filter, Fusion, ReadOptions, SearchRequest, Sort, TextQuery, VectorClause,
};

use crate::ApiError;

/// The parameters of `GET /api/v1/search`. Only `collection` is required.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchParams {
    /// The collection's name, such as `demo.emoji`.
    pub collection: String,
    /// Words to look for.
    pub q: Option<String>,
    /// Fields to look in, separated by commas; all text fields if left out.
    pub fields: String,
    /// Whether the last word may be the beginning of a longer one.
    pub prefix: bool,
    /// Nearest neighbours of this document's vector.
    pub like: Option<u64>,
    /// A condition, such as `category = 'food' and since >= 15.0`.
    pub filter: Option<String>,
    /// Sort fields separated by commas, greatest first with a leading `-`.
    pub sort: String,
    /// Fields whose values are to be counted, separated by commas.
    pub facets: String,
    /// How many hits.
    pub limit: usize,
    /// Continue where a previous answer of the same search ended, with its `next`.
    pub page_token: Option<String>,
    /// Whether hits carry the passages that matched.
    pub highlight: bool,
    /// Wait until `safe_ts` has reached this timestamp.
    pub at_least: Option<Ts>,
    /// How long to wait for it, in milliseconds.
    pub wait_ms: u64,
}

impl SearchParams {
    /// The request that these parameters mean.
    ///
    /// # Errors
    /// [`ApiError::Invalid`] if the filter cannot be read.
    pub fn into_request(self) -> Result<SearchRequest, ApiError> {
        let filter = self.filter.as_deref().map(Filter::parse).transpose();
        let filter = filter.map_err(|error| ApiError::Invalid { detail: format!("filter: {error}") })?;
        Ok(SearchRequest {
            collection: self.collection,
            text: self.q.map(|words| text(words, &self.fields, self.prefix)),
            vector: self.like.map(|id| VectorClause { like: Some(id), ..VectorClause::default() }),
            filter,
            sort: names(&self.sort).map(sort).collect(),
            facets: names(&self.facets).map(facet).collect(),
            limit: self.limit,
            page_token: self.page_token,
            highlight: self.highlight,
            fusion: Fusion::default(),
            read: ReadOptions { at_least: self.at_least, wait_ms: self.wait_ms, ..ReadOptions::default() },
        })
    }
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

fn text(words: String, fields: &str, prefix: bool) -> TextQuery {
    let query = TextQuery { prefix, ..TextQuery::new(words) };
    names(fields).fold(query, TextQuery::within)
}

fn sort(name: &str) -> Sort {
    match name.strip_prefix('-') {
        Some(field) => Sort { field: field.to_owned(), descending: true },
        None => Sort { field: name.to_owned(), descending: false },
    }
}

fn facet(name: &str) -> FacetRequest {
    FacetRequest { field: name.to_owned(), limit: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_separated_by_commas_and_a_minus_sorts_descending() {
        let params = SearchParams {
            collection: "demo.emoji".to_owned(),
            q: Some("katze".to_owned()),
            fields: "label, names.de,".to_owned(),
            sort: "-uses,_id".to_owned(),
            like: Some(3677),
            ..SearchParams::default()
        };
        let request = params.into_request().expect("nothing to refuse");
        let text = request.text.expect("words were given");
        let fields: Vec<_> = text.fields.iter().map(|field| field.field.as_str()).collect();
        assert_eq!((text.text.as_str(), fields), ("katze", vec!["label", "names.de"]));
        let sort: Vec<_> = request.sort.iter().map(|key| (key.field.as_str(), key.descending)).collect();
        assert_eq!(sort, [("uses", true), ("_id", false)]);
        assert_eq!(request.vector.and_then(|clause| clause.like), Some(3677));
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_refused_by_name() {
        let filter = Some("category = = 'food'".to_owned());
        let params = SearchParams { filter, ..SearchParams::default() };
        let error = params.into_request().expect_err("two equal signs");
        assert!(error.to_string().starts_with("filter: "), "{error}");
    }
}
