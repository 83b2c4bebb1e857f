"""Small documents in the shapes of well-known public interfaces, in words of our own."""

from __future__ import annotations

from typing import Any

PETS: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "https://{region}.pets.example/v1/", "variables": {"region": {"default": "eu"}}}],
    "paths": {
        "/pets": {
            "parameters": [{"$ref": "#/components/parameters/Trace"}],
            "get": {
                "operationId": "listPets",
                "summary": "List pets",
                "parameters": [
                    {
                        "name": "limit",
                        "in": "query",
                        "schema": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
                    },
                    {"name": "tags", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {
                        "name": "ids",
                        "in": "query",
                        "explode": False,
                        "schema": {"type": "array", "items": {"type": "integer"}},
                    },
                    {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                    {"name": "session", "in": "cookie", "schema": {"type": "string"}},
                ],
            },
            "post": {
                "operationId": "create pet!",
                "description": "Add a pet.",
                "parameters": [{"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}}],
                "requestBody": {"$ref": "#/components/requestBodies/Pet"},
            },
        },
        "/pets/{petId}": {
            "parameters": [{"name": "petId", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {"operationId": "getPet"},
            "put": {"operationId": "setPet", "requestBody": {"$ref": "#/components/requestBodies/Pet"}},
            "delete": {"operationId": "removePet"},
        },
    },
    "components": {
        "parameters": {"Trace": {"name": "X-Trace", "in": "header", "schema": {"type": "string"}}},
        "requestBodies": {
            "Pet": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}},
            }
        },
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["id", "name"],
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "name": {"type": "string", "example": "Rex"},
                    "nick": {"type": "string", "nullable": True},
                    "parent": {"$ref": "#/components/schemas/Pet"},
                    "owner": {"nullable": True, "allOf": [{"$ref": "#/components/schemas/Owner"}]},
                },
                "xml": {"name": "pet"},
            },
            "Owner": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    },
}
"""In the shape of the example that every tutorial has."""

ISSUES: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Issues", "version": "1"},
    "servers": [{"url": "/api"}],
    "security": [{"token": []}],
    "paths": {
        "/repos/{owner}/{repo}/issues": {
            "get": {
                "operationId": "issues/list-for-repo",
                "parameters": [
                    {"name": "owner", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "repo", "in": "path", "required": True, "schema": {"type": "string"}},
                    {
                        "name": "state",
                        "in": "query",
                        "schema": {"type": "string", "enum": ["open", "closed"], "default": "open"},
                    },
                    {"name": "Authorization", "in": "header", "schema": {"type": "string"}},
                ],
            }
        },
        "/meta": {"get": {"operationId": "meta/get", "security": []}},
        "/search": {
            "get": {
                "operationId": "search",
                "security": [{"key": []}, {"session": []}],
                "parameters": [
                    {
                        "name": "q",
                        "in": "query",
                        "required": True,
                        "content": {"application/json": {"schema": {"type": "object"}}},
                    },
                    {"name": "api_key", "in": "query", "schema": {"type": "string"}},
                ],
            }
        },
    },
    "components": {
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "query", "name": "api_key"},
            "session": {"type": "apiKey", "in": "cookie", "name": "sid"},
            "login": {"type": "http", "scheme": "basic"},
        }
    },
}
"""In the shape of an interface of a forge: slashes in ids, several security schemes."""

UPLOADS: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Uploads", "version": "1"},
    "servers": [{"url": "https://files.example"}],
    "paths": {
        "/charges": {
            "post": {
                "operationId": "charge",
                "requestBody": {
                    "content": {
                        "application/x-www-form-urlencoded": {
                            "schema": {
                                "type": "object",
                                "properties": {
                                    "amount": {"type": "integer"},
                                    "note": {"type": "string"},
                                    "tags": {"type": "array", "items": {"type": "string"}},
                                },
                            }
                        }
                    }
                },
            }
        },
        "/files": {
            "post": {
                "operationId": "upload",
                "requestBody": {
                    "content": {
                        "multipart/form-data": {
                            "schema": {
                                "type": "object",
                                "required": ["file"],
                                "properties": {
                                    "file": {"type": "string", "contentMediaType": "application/octet-stream"},
                                    "purpose": {"type": "string"},
                                    "meta": {"type": "object"},
                                },
                            },
                            "encoding": {"file": {"contentType": "image/png"}},
                        }
                    }
                },
            }
        },
        "/raw": {"put": {"operationId": "raw", "requestBody": {"content": {"application/octet-stream": {}}}}},
        "/note": {"put": {"operationId": "note", "requestBody": {"content": {"text/plain": {}}}}},
    },
}
"""In the shape of interfaces for payments and files: forms, and forms with files."""
