//! Enables the same features of shared dependencies in every build. See the manifest.

#![no_std]
