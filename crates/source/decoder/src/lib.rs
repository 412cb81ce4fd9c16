//! A raw change plus its table becomes a typed row event.
