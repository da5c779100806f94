//! The seam under loom and under crash injection.
