"""Labs that say everything that a file can say: every key of every part, every option of every service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from provisioner.values.state import Secret

Place = tuple[str | int, ...]

_HEX = "a" * 64
_VERSION = "580.95.05"


def _lab_with_door(**options: Any) -> dict[str, Any]:
    """A lab whose door has these options beside its sites."""
    gateway = {"master_key": Secret("master", "sk-master"), "aliases": {"fast": ["cloud"]}}
    return {
        "plugin": "provisioner.inference.lab",
        "name": "lab",
        "upstreams": {"cloud": {"model": "openrouter/vendor/model", "api_key": Secret("cloud", "cloud-key")}},
        "containers": {
            "gateway": {"services": {"litellm": gateway}},
            "door": {"services": {"door": {"sites": {"api.home.example": "gateway/litellm"}, **options}}},
        },
    }


def _lab_with_chat() -> dict[str, Any]:
    """A lab whose people have a chat, which says all that it can say."""
    chat = {
        "drain": "2m",
        "port": 8090,
        "admin": "penny@home.example",
        "password": Secret("webui", "webui-password"),
        "connect": ["gateway/litellm", "voice/kokoro"],
        "embeddings": "gateway/litellm",
        "embeddings_model": "fast",
        "max_body": 1048576,
        "start_timeout_s": 1800,
        "proof": "browser",
        "expose": "lan",
    }
    gateway = {"master_key": Secret("master", "sk-master"), "aliases": {"fast": ["cloud"]}}
    return {
        "name": "lab",
        "upstreams": {"cloud": {"model": "openrouter/vendor/model", "api_key": Secret("cloud", "cloud-key")}},
        "containers": {
            "gateway": {"services": {"litellm": gateway}},
            "voice": {"services": {"kokoro": {}}},
            "web": {"services": {"open_webui": chat}},
        },
    }


def _lab_with_team() -> dict[str, Any]:
    """A lab with a team of agents that says all that it can say."""
    price = {"read": 0.5, "written": 2.0}
    team = {
        "port": 4100,
        "drain": "2m",
        "queue": "2m",
        "api_key": Secret("team", "team-key"),
        "coordinator": {"instructions": "Coordinate.", "model": "cloud", "price": price},
        "members": [
            {"name": "coder", "says": "Ask it.", "instructions": "Write code.", "model": "cloud", "price": price},
        ],
        "most_turns": 12,
        "most_tokens": 40000,
        "most_seconds": 300,
        "most_cost": 0.05,
        "transcript": True,
        "max_body": 1048576,
        "expose": "lan",
    }
    return {
        "name": "lab",
        "upstreams": {"cloud": {"model": "openrouter/vendor/model", "api_key": Secret("cloud", "cloud-key")}},
        "containers": {"team": {"services": {"agent_team": team}}},
    }


def _lab_with_pipelines() -> dict[str, Any]:
    """A lab with pipelines that say all that they can say."""
    pipes = {
        "source": "https://archives.example/pipelines",
        "commit": "c" * 40,
        "source_sha256": _HEX,
        "port": 9099,
        "drain": "2m",
        "queue": "2m",
        "api_key": Secret("pipes", "0123456789abcdef"),
        "pipelines": ["agents/team.py"],
        "model": "team",
        "asked": True,
        "connect": ["llama/llama_cpp"],
        "environment": {"FAR_MODEL": "vendor/model"},
        "secrets": [{"name": "FAR_KEY", "value": Secret("far", "far-key")}],
        "answer_timeout_s": 60,
        "max_body": 1048576,
        "expose": "lan",
    }
    engine = {"model": "tiny", "api_key": Secret("engine", "engine-key")}
    return {
        "name": "lab",
        "models": {"tiny": {"source": "builtin:tiny"}},
        "containers": {
            "llama": {"services": {"llama_cpp": engine}},
            "pipes": {"services": {"pipelines": pipes}},
        },
    }


def _lab_with_hub() -> dict[str, Any]:
    """A lab that serves a whole model of Hugging Face, which says all that it can say."""
    server = {
        "stack": "vllm-cu13",
        "mirror": "https://wheels.example/simple",
        "backend": "cuda",
        "drain": "2m",
        "queue": "3m",
        "idle": "15m",
        "hold": "60s",
        "port": 8000,
        "api_key": Secret("vllm", "0123456789abcdef"),
        "key_grace": "15m",
        "model": "whole",
        "max_model_len": 4096,
        "max_num_seqs": 8,
        "dtype": "auto",
        "quantization": "fp8",
        "kv_cache_dtype": "fp8",
        "gpu_memory_utilization": 0.9,
        "kv_cache_gib": 0,
        "cpu_offload": 0,
        "tensor_parallel": 1,
        "enforce_eager": False,
        "speculative": "ngram",
        "speculative_tokens": 3,
        "reasoning_parser": "qwen3",
        "tool_parser": "hermes",
        "vision": False,
        "max_body": 1048576,
        "start_timeout_s": 600,
        "environment": {"VLLM_LOGGING_LEVEL": "INFO"},
        "expose": "host",
    }
    share = [["hub/vllm", "other/vllm"]]
    other = {"stack": "vllm-cu13", "api_key": Secret("other", "fedcba9876543210"), "model": "whole"}
    return {
        "name": "lab",
        "hosts": {"box": {"incus": "local", "share": share, "share_key": Secret("share-box", "share-box-key")}},
        "models": {"whole": {"source": "dir:/models/qwen", "format": "safetensors"}},
        "containers": {
            "hub": {"host": "box", "gpu": "any", "services": {"vllm": server}},
            "other": {"host": "box", "gpu": "any", "services": {"vllm": other}},
        },
    }


def _lab_with_ollama() -> dict[str, Any]:
    """A lab with a server of Ollama that says all that it can say."""
    server = {
        "source": "https://archives.example/ollama-linux-amd64.tar.zst",
        "source_sha256": "b" * 64,
        "drain": "2m",
        "queue": "3m",
        "idle": "15m",
        "hold": "60s",
        "port": 11434,
        "api_key": Secret("ollama", "0123456789abcdef"),
        "key_grace": "15m",
        "models": ["tiny"],
        "pull": [{"name": "small", "model": "qwen3:0.6b", "digest": "c" * 64}],
        "context": 4096,
        "num_parallel": 2,
        "max_loaded_models": 2,
        "keep_alive": "always",
        "flash_attention": "on",
        "kv_cache_type": "q8_0",
        "vulkan": True,
        "partial_offload": True,
        "max_body": 1048576,
        "start_timeout_s": 600,
        "environment": {"OLLAMA_GPU_OVERHEAD": "0"},
        "expose": "host",
    }
    share = [["amd/ollama", "other/ollama"]]
    other = {"api_key": Secret("other", "fedcba9876543210"), "models": ["tiny"]}
    return {
        "name": "lab",
        "hosts": {"box": {"incus": "local", "share": share, "share_key": Secret("share-box", "share-box-key")}},
        "models": {"tiny": {"source": "builtin:tiny", "context": 512}},
        "containers": {
            "amd": {"host": "box", "gpu": "any", "services": {"ollama": server}},
            "other": {"host": "box", "copy_of": "amd", "gpu": "any", "services": {"ollama": other}},
        },
    }


def _lab_with_image() -> dict[str, Any]:
    """A lab with an OCI image that says all that it can say, and one with pages for people."""
    image = {
        "image": f"registry.example/team/server@sha256:{_HEX}",
        "registry_ca": "/etc/lab/registry.pem",
        "registry_user": "penny",
        "registry_password": Secret("registry", "registry-password"),
        "drain": "2m",
        "port": 8300,
        "image_port": 80,
        "api_key": Secret("image", "0123456789abcdef"),
        "answers": ["/v1/chat/completions"],
        "looks": ["/v1/models"],
        "parallel": 4,
        "max_body": 1048576,
        "health": "/healthz",
        "health_command": ["/bin/true"],
        "command": ["/bin/server"],
        "arguments": ["--verbose"],
        "environment": {"WORD": "said"},
        "secrets": [
            {"name": "TOKEN", "value": Secret("token", "token-of-an-image"), "as": "variable"},
            {"name": "key.pem", "value": Secret("file", "file-of-an-image"), "as": "file"},
        ],
        "ports": [
            {"port": 1883, "why": "MQTT of the sensors"},
            {"port": 514, "image_port": 5514, "protocol": "udp", "why": "logs", "need": "routers know no other"},
        ],
        "volumes": {"data": "/data"},
        "user": "1000:1000",
        "capabilities": ["CHOWN"],
        "read_only": True,
        "init": True,
        "start_timeout_s": 60,
        "expose": "lan",
    }
    pages = {"image": f"registry.example/team/pages@sha256:{_HEX}", "image_port": 80, "pages": ["/"]}
    return {
        "name": "lab",
        "containers": {"image": {"services": {"oci": image}}, "pages": {"services": {"oci": pages}}},
    }


LABS: dict[str, dict[str, Any]] = {
    "everything": {
        "name": "lab",
        "hosts": {
            "box": {
                "incus": "local",
                "address": "192.168.1.5",
                "share": [["llama/llama_cpp", "tabby/tabbyapi"], ["several/llama_cpp", "voice/kokoro"]],
                "share_key": Secret("share-box", "share-box-key"),
            },
            "far": {
                "incus": "https://far.example:8443",
                "cert": "/etc/lab/client.crt",
                "key": "/etc/lab/client.key",
                "fingerprint": _HEX,
                "address": "192.168.1.6",
            },
            "pve": {
                "proxmox": "https://192.168.1.10:8006",
                "user": "root@pam",
                "token": {"id": "provision", "secret": Secret("token", "token-value")},
                "password": Secret("root", "password-value"),
                "ssh": "root@192.168.1.10",
                "transport": "pct",
                "ssh_key": "/etc/lab/id_ed25519",
                "node": "pve1",
                "ca": "/etc/lab/ca.pem",
                "storage": "local-lvm",
                "templates": "local",
                "bridge": "vmbr0",
                "pool": "lab",
            },
        },
        "models": {
            "tiny": {"source": "builtin:tiny", "format": "gguf", "sha256": _HEX, "context": 4096},
            "file": {"source": "file:/models/qwen.gguf"},
            "hub": {"source": "hf:org/repo:Q4_K_M"},
            "web": {"source": "https://models.example/qwen.gguf", "sha256": _HEX},
            "folder": {"source": "dir:/models/qwen-exl3", "format": "exl3"},
            "draft": {"source": "hf:org/draft-exl3@main"},
        },
        "upstreams": {
            "cloud": {"model": "openrouter/vendor/model", "api_key": Secret("cloud", "cloud-key")},
            "house": {"model": "openai/model", "base_url": "http://box:8080/v1", "api_key": Secret("house", "key")},
        },
        "containers": {
            "llama": {
                "host": "box",
                "image": "debian/13",
                "cpu": 2,
                "memory": "8GiB",
                "disk": "20GiB",
                "gpu": {
                    "vendor": "nvidia",
                    "sharing": "shared",
                    "require": {"driver": "550.54", "cuda": "12.4"},
                    "userspace": {
                        "source": f"https://drivers.example/NVIDIA-Linux-x86_64-{_VERSION}.run",
                        "sha256": _HEX,
                    },
                },
                "adopt": True,
                "services": {
                    "llama_cpp": {
                        "model": "tiny",
                        "mmproj": "file",
                        "drain": "2m",
                        "queue": "2m",
                        "idle": "15m",
                        "hold": "60s",
                        "port": 8080,
                        "api_key": Secret("llama", "llama-key"),
                        "key_grace": "15m",
                        "context": 4096,
                        "parallel": 1,
                        "threads": 2,
                        "batch": 512,
                        "ubatch": 256,
                        "kv_cache": {"k": "q8_0", "v": "q8_0"},
                        "flash_attention": "auto",
                        "kv_offload": True,
                        "backend": "cuda",
                        "device": "CUDA0",
                        "environment": {"GGML_WORD": "said"},
                        "gpu_layers": "auto",
                        "cpu_moe": False,
                        "n_cpu_moe": 0,
                        "instructions": "common",
                        "load_mode": "auto",
                        "jinja": True,
                        "reasoning": "auto",
                        "beside": False,
                        "metrics": True,
                        "extra_arguments": ["--no-warmup"],
                        "source": "pypi:llama-cpp-python==0.3.36",
                        "source_sha256": _HEX,
                        "build_options": ["GGML_NATIVE=OFF"],
                        "perplexity": False,
                        "cuda_version": "13.2",
                        "cuda_architectures": ["86"],
                        "expose": "lan",
                    }
                },
            },
            "several": {
                "host": "box",
                "services": {"llama_cpp": {"models": ["web", "hub"], "models_max": 1, "expose": "host"}},
            },
            "tabby": {
                "host": "box",
                "gpu": "any",
                "services": {
                    "tabbyapi": {
                        "source": "https://sources.example/tabby",
                        "commit": "b" * 40,
                        "stack": "tabbyapi-cu12",
                        "mirror": "https://wheels.example/simple",
                        "backend": "exllamav3",
                        "drain": "2m",
                        "queue": "2m",
                        "idle": "15m",
                        "hold": "60s",
                        "port": 5000,
                        "api_key": Secret("tabby", "0123456789abcdef"),
                        "key_grace": "15m",
                        "admin_key": Secret("tabby_admin", "fedcba9876543210"),
                        "model": "folder",
                        "max_seq_len": 4096,
                        "cache_size": 4096,
                        "cache_mode": "FP16",
                        "chunk_size": 2048,
                        "max_batch_size": 1,
                        "vision": False,
                        "tensor_parallel": False,
                        "gpu_split": [10.0],
                        "cpu_moe_offload_layers": 0,
                        "reasoning": False,
                        "tool_format": "qwen3_coder",
                        "draft_mode": "model",
                        "draft_model": "draft",
                        "ngram_match_min": 2,
                        "sysmem_recurrent_cache": 0,
                        "sysmem_kv_cache": 0,
                        "max_body": 1048576,
                        "start_timeout_s": 600,
                        "environment": {"TABBY_LOG_WORD": "said"},
                        "expose": "host",
                    }
                },
            },
            "voice": {
                "host": "box",
                "services": {
                    "kokoro": {
                        "source": "https://sources.example/kokoro",
                        "commit": "c" * 40,
                        "device": "cpu",
                        "drain": "2m",
                        "queue": "2m",
                        "idle": "15m",
                        "hold": "60s",
                        "beside": True,
                        "port": 8880,
                        "streaming": "sentences",
                        "patches": "auto",
                        "default_voice": "af_heart",
                        "voices": ["af_heart"],
                        "web_player": False,
                        "max_input": 4096,
                        "start_timeout_s": 300,
                        "model_source": "https://models.example/kokoro.pth",
                        "model_sha256": _HEX,
                        "model_config_sha256": _HEX,
                        "spacy_model_source": "https://models.example/spacy.whl",
                        "spacy_model_sha256": _HEX,
                        "mirror": "https://wheels.example/simple",
                        "expose": "host",
                    }
                },
            },
            "gateway": {
                "host": "box",
                "services": {
                    "litellm": {
                        "drain": "2m",
                        "queue": "2m",
                        "port": 4000,
                        "beside": True,
                        "master_key": Secret("master", "sk-master"),
                        "aliases": {
                            "fast": ["tiny", "cloud"],
                            "reasoning": {
                                "engines": ["house", "fast"],
                                "timeout": 60.0,
                                "stream_timeout": 30.0,
                                "retries": 1,
                                "context_window_fallbacks": ["web"],
                            },
                            "batch": {"engines": ["tiny"], "thinking": "on", "thinking_budget": 2048},
                        },
                        "request_timeout": 600,
                        "stream_timeout": 300,
                        "num_retries": 0,
                        "allowed_fails": 3,
                        "cooldown_time": 30,
                        "max_body": 1048576,
                        "max_headers": 65536,
                        "headers_timeout": 10,
                        "body_timeout": 30,
                        "paths": ["/v1/batches"],
                        "expose": "lan",
                    }
                },
            },
            "desk": {
                "host": "pve",
                "image": "debian/13",
                "memory": "8GiB",
                "proxmox": {
                    "vmid": 200,
                    "storage": "local-lvm",
                    "swap": "512MiB",
                    "network": {
                        "bridge": "vmbr0",
                        "ip": "192.168.1.50/24",
                        "gateway": "192.168.1.1",
                        "ip6": "fd00::50/64",
                        "gateway6": "fd00::1",
                        "vlan": 5,
                        "firewall": False,
                        "mac": "BC:24:11:00:00:01",
                    },
                    "transport": "pct",
                    "features": ["keyctl"],
                    "devices": [{"path": "/dev/dri/renderD128", "mode": "0660", "uid": 0, "gid": "render"}],
                    "mounts": [{"path": "/srv/data", "size": "8GiB", "storage": "local-lvm", "backup": True}],
                    "unprivileged": True,
                    "onboot": True,
                    "order": 1,
                    "pool": "lab",
                    "tags": ["desktop"],
                    "description": "a desktop",
                    "protection": False,
                },
                "services": {
                    "desktop": {
                        "user": "penny",
                        "password": Secret("penny", "penny-password"),
                        "users": [{"name": "guest", "password": Secret("guest", "guest-password")}],
                        "port": 3389,
                        "flavour": "core",
                        "browser": "firefox-esr",
                        "home_page": "https://home.example/",
                        "locale": "de_DE.UTF-8",
                        "keyboard": "de",
                        "timezone": "Europe/Berlin",
                        "certificate": "-----BEGIN CERTIFICATE-----",
                        "certificate_key": Secret("certificate", "-----BEGIN PRIVATE KEY-----"),
                        "clipboard": True,
                        "drives": False,
                        "sound": True,
                        "max_sessions": 3,
                        "disconnected_minutes": 0,
                        "idle_minutes": 0,
                        "patience_s": 60,
                        "expose": "lan",
                    }
                },
            },
        },
        "secrets": {"command": ["pass", "show", "lab/{name}"]},
        "snapshots": {"keep": 3},
        "fit_check": "warn",
    },
    "door": _lab_with_door(
        port=8443,
        plain_port=8081,
        authority=Secret("authority", "an-authority-of-its-own"),
        largest_body=1048576,
        unsized_bodies=False,
        hsts="24h",
        drain="2m",
        expose="lan",
    ),
    "hub": _lab_with_hub(),
    "team": _lab_with_team(),
    "pipelines": _lab_with_pipelines(),
    "ollama": _lab_with_ollama(),
    "image": _lab_with_image(),
    "chat": _lab_with_chat(),
    "certified door": _lab_with_door(
        certificate="tls/fullchain.pem", certificate_key=Secret("door_key", "-----BEGIN PRIVATE KEY-----")
    ),
    "public door": _lab_with_door(
        acme_email="penny@home.example",
        acme_agree=True,
        acme_directory="https://authority.example/directory",
        acme_ca="/etc/lab/authority.pem",
    ),
    "otherwise": {
        "name": "lab",
        "hosts": {
            "pve": {
                "proxmox": "https://192.168.1.10:8006",
                "user": "root@pam",
                "password": Secret("root", "password-value"),
                "fingerprint": _HEX,
            }
        },
        "containers": {
            "pci": {"gpu": {"pci": "0000:01:00.0"}},
            "uuid": {"gpu": {"uuid": "GPU-00000000-0000-0000-0000-000000000000"}},
            "vram": {"gpu": {"vram": "8GiB"}},
        },
    },
    "turns": {
        "name": "lab",
        "hosts": {
            "pve": {
                "proxmox": "https://192.168.1.10:8006",
                "user": "root@pam",
                "password": Secret("root", "password-value"),
                "share": [["one/llama_cpp", "two/llama_cpp"]],
                "share_key": Secret("share-pve", "share-pve-key"),
            }
        },
        "models": {"tiny": {"source": "builtin:tiny"}},
        "containers": {
            "one": {"services": {"llama_cpp": {"model": "tiny"}}},
            "two": {"services": {"llama_cpp": {"model": "tiny"}}},
        },
    },
    "vectors": {
        "name": "lab",
        "models": {
            "embeds": {"source": "builtin:tiny-embedding"},
            "ranks": {"source": "builtin:tiny-rerank"},
        },
        "containers": {
            "embeds": {"services": {"llama_cpp": {"model": "embeds", "embedding": True}}},
            "ranks": {"services": {"llama_cpp": {"model": "ranks", "rerank": True}}},
        },
    },
}
"""By what they are for; keys of a file that exclude one another stand in different ones."""


def steps(value: Any, place: Place = ()) -> Iterator[Place]:
    """The place of everything below a value: keys of mappings and numbers of lists."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in pairs:
        yield (*place, step)
        yield from steps(inner, (*place, step))


def at(value: Any, place: Place) -> Any:
    """What stands at a place."""
    for step in place:
        value = value[step]
    return value


def with_value(value: Any, place: Place, new: Any) -> Any:
    """A copy with something else at a place."""
    if not place:
        return new
    first, rest = place[0], place[1:]
    if isinstance(value, dict):
        return {key: with_value(inner, rest, new) if key == first else inner for key, inner in value.items()}
    return [with_value(inner, rest, new) if number == first else inner for number, inner in enumerate(value)]


def with_key(value: Any, place: Place, new: str) -> Any:
    """A copy in which the last step of a place, a key, has another name."""
    *above, old = place
    mapping = at(value, tuple(above))
    return with_value(value, tuple(above), {new if key == old else key: inner for key, inner in mapping.items()})
