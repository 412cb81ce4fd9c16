//! The puller against recorded traffic, against a model of a store, and against the playground.

mod frames;
mod interleavings;
mod locks;
mod model;
mod playground;
mod storm;
mod support;
