"""Tables of Delta and Iceberg with their real libraries, from Maven Central."""
