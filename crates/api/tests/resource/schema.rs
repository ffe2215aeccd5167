//! The schema of a federation file.

use faultline_api::samples::SAMPLES;
use faultline_api::{parse, schema};
use serde_json::json;

#[test]
fn the_schema_of_a_file_accepts_what_a_file_has() {
    let schema = schema();
    assert_eq!(schema["title"], "Federation");
    assert_eq!(schema["properties"]["apiVersion"]["enum"], json!(["faultline.dev/v1alpha1"]));
    assert_eq!(schema["required"], json!(["apiVersion", "kind", "metadata", "spec"]));
    assert_eq!(schema["additionalProperties"], json!(false));
    assert!(schema["properties"]["status"].is_null());
}

#[test]
fn the_schema_of_a_file_rejects_unknown_fields() {
    let schema = schema();
    let types = schema["$defs"].as_object().expect("it names types");
    let objects = types.iter().filter(|(_, it)| it["type"] == "object");
    let open: Vec<&str> = objects
        .filter(|(_, it)| it["additionalProperties"] != json!(false))
        .map(|it| it.0.as_str())
        .collect();
    // Registered protocols and applications add their parameters to this type.
    assert_eq!(open, ["Custom"]);
    let unknown = SAMPLES[0].text.replace("spec:", "spec:\n  unknown: 1");
    assert!(parse("unknown", unknown.as_bytes()).is_err());
}
