"""The api: HTTP on loopback, for people and programs. Status comes from views: ClickHouse may be down."""
