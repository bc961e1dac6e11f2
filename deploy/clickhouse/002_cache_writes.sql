-- Tokens written into a provider's prompt cache are charged apart from those read afresh and those read from it.

ALTER TABLE attempts
    ADD COLUMN IF NOT EXISTS cache_write_tokens Nullable(UInt32)
        COMMENT 'part of input_tokens; for the shorter or only lifetime' AFTER cached_tokens,
    ADD COLUMN IF NOT EXISTS cache_write_1h_tokens Nullable(UInt32)
        COMMENT 'part of input_tokens' AFTER cache_write_tokens;
