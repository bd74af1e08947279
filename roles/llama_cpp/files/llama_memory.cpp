// llama-memory NAME[,NAME] ARGUMENT...: the bytes that llama-server would take of the devices so named, were it started with these
// arguments; with "-" in their place, of the host's memory without any. A line for the model, one for what drafts (a model or layers of the
// same one), one for what turns images into tokens, each with the bytes of weights, of what is kept of tokens, and of what it computes with.
//
// No device is needed, and of files only the heads are read, from which llama.cpp puts its graphs together (`no_alloc`). Devices are stood
// in for by names that reserve memory by the rules of ggml's back ends (ggml-cuda.cu, fattn.cu and ggml-vulkan.cpp of llama.cpp 0.5.0).
// Heads may come from anybody: who runs this program leaves it no more than to read files (`confined_program.py`).

#include "arg.h"
#include "common.h"
#include "fit.h"
#include "ggml-backend-impl.h"
#include "llama.h"
#include "log.h"
#include "mtmd.h"
#include "speculative.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

// A stand-in for a device.

struct card {
    std::string name;
    ggml_backend_device device;
    ggml_backend_buffer_type memory;
};

card & card_of(ggml_backend_dev_t device) {
    return *static_cast<card *>(device->context);
}

bool is_cuda(ggml_backend_dev_t device) {
    return card_of(device).name.rfind("CUDA", 0) == 0;
}

// Which sizes of heads CUDA's flash attention knows: `auto` computes without it where it does not.
bool knows_attention(const ggml_tensor * op) {
    const ggml_tensor * queries = op->src[0], * keys = op->src[1], * values = op->src[2];
    const int64_t size = keys->ne[0], shared = queries->ne[2] / keys->ne[2];
    switch (size) {
        case 40: case 64: case 72: case 80: case 96: case 112: case 128: case 256: return values->ne[0] == size;
        case 192: return values->ne[0] == 128 && shared % 8 == 0;
        case 320: return values->ne[0] == 256 && shared % 32 == 0;
        case 512: return values->ne[0] == size && shared >= 2;
        case 576: return values->ne[0] == 512 && shared >= 2;
        default: return false;
    }
}

// What CUDA's flash attention keeps beside its result: keys and values of packed types, unpacked.
size_t unpacked_bytes(const ggml_tensor * op) {
    const ggml_tensor * keys = op->src[1], * values = op->src[2];
    const bool is_one = values->view_src &&
        (values->view_src == keys || (values->view_src == keys->view_src && values->view_offs == keys->view_offs));
    size_t size = keys->type == GGML_TYPE_F16 ? 0 : 128 + ggml_nelements(keys) * sizeof(ggml_fp16_t);
    if (values->type != GGML_TYPE_F16 && !is_one) {
        size += 128 + ggml_nelements(values) * sizeof(ggml_fp16_t);
    }
    return size;
}

size_t room_for(ggml_backend_buffer_type_t memory, const ggml_tensor * tensor) {
    size_t size = ggml_nbytes(tensor);
    if (!is_cuda(memory->device)) {
        return size;
    }
    if (tensor->op == GGML_OP_FLASH_ATTN_EXT) {
        size += unpacked_bytes(tensor);
    }
    constexpr int64_t whole_row = 512;
    if (ggml_is_quantized(tensor->type) && tensor->ne[0] % whole_row != 0) {
        size += ggml_row_size(tensor->type, whole_row - tensor->ne[0] % whole_row);
    }
    return size;
}

// With fewer tokens at once weights in the host's memory are computed with there.
bool takes_over(const ggml_tensor * op) {
    constexpr int64_t enough = 32;
    switch (op->op) {
        case GGML_OP_GET_ROWS: return false;
        case GGML_OP_MUL_MAT: return op->ne[1] >= enough;
        case GGML_OP_MUL_MAT_ID: case GGML_OP_ROPE: case GGML_OP_ROPE_BACK: return op->ne[2] >= enough;
        default: return ggml_nrows(op) >= enough;
    }
}

// States of recurrent layers are reserved all the same: addresses without memory behind them.
ggml_backend_buffer_t reserved(ggml_backend_buffer_type_t memory, size_t size) {
    ggml_backend_buffer_i does = {};
    does.get_base = [](ggml_backend_buffer_t) { return reinterpret_cast<void *>(4096); };
    does.memset_tensor = [](ggml_backend_buffer_t, ggml_tensor *, uint8_t, size_t, size_t) {};
    does.set_tensor = [](ggml_backend_buffer_t, ggml_tensor *, const void *, size_t, size_t) {};
    does.get_tensor = [](ggml_backend_buffer_t, const ggml_tensor *, void *, size_t, size_t) {};
    does.clear = [](ggml_backend_buffer_t, uint8_t) {};
    return ggml_backend_buffer_init(memory, does, nullptr, size);
}

ggml_guid * guid() {
    static ggml_guid known = {0x6c, 0x6c, 0x61, 0x6d, 0x61, 0x2d, 0x6d, 0x65, 0x6d, 0x6f, 0x72, 0x79, 0, 0, 0, 1};
    return &known;
}

ggml_backend_t started(ggml_backend_dev_t device, const char *) {
    ggml_backend_i does = {};
    does.get_name = [](ggml_backend_t backend) { return card_of(backend->device).name.c_str(); };
    does.free = [](ggml_backend_t backend) { delete backend; };
    does.synchronize = [](ggml_backend_t) {};
    does.graph_compute = [](ggml_backend_t, ggml_cgraph *) { return GGML_STATUS_FAILED; };
    return new ggml_backend{guid(), does, device, nullptr};
}

// A back end without functions of its own.
ggml_backend_reg nobody = {
    GGML_BACKEND_API_VERSION,
    {
        [](ggml_backend_reg_t) { return "stand-in"; },
        [](ggml_backend_reg_t) { return size_t(0); },
        [](ggml_backend_reg_t, size_t) -> ggml_backend_dev_t { return nullptr; },
        [](ggml_backend_reg_t, const char *) -> void * { return nullptr; },
    },
    nullptr,
};

void make(card & one, const std::string & name) {
    one.name = name;
    ggml_backend_device_i & device = one.device.iface;
    device.get_name = [](ggml_backend_dev_t dev) { return card_of(dev).name.c_str(); };
    device.get_description = device.get_name;
    device.get_memory = [](ggml_backend_dev_t, size_t * free, size_t * total) { *free = *total = size_t(1) << 50; };
    device.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    device.get_props = [](ggml_backend_dev_t dev, ggml_backend_dev_props * props) {
        *props = {};
        props->name = props->description = card_of(dev).name.c_str();
        props->memory_free = props->memory_total = size_t(1) << 50;
        props->type = GGML_BACKEND_DEVICE_TYPE_GPU;
        props->caps.async = props->caps.host_buffer = props->caps.events = true;
    };
    device.init_backend = started;
    device.get_buffer_type = [](ggml_backend_dev_t dev) { return &card_of(dev).memory; };
    device.supports_op = [](ggml_backend_dev_t dev, const ggml_tensor * op) {
        return op->op != GGML_OP_FLASH_ATTN_EXT || !is_cuda(dev) || knows_attention(op);
    };
    device.supports_buft = [](ggml_backend_dev_t dev, ggml_backend_buffer_type_t memory) { return memory->device == dev; };
    device.offload_op = [](ggml_backend_dev_t, const ggml_tensor * op) { return takes_over(op); };
    ggml_backend_buffer_type_i & memory = one.memory.iface;
    memory.get_name = [](ggml_backend_buffer_type_t type) { return card_of(type->device).name.c_str(); };
    memory.alloc_buffer = reserved;
    // Vulkan's is the device's own, and at most 256.
    memory.get_alignment = [](ggml_backend_buffer_type_t type) { return size_t(is_cuda(type->device) ? 128 : 256); };
    memory.get_alloc_size = room_for;
    one.device.reg = &nobody;
    one.device.context = &one;
    one.memory.device = &one.device;
    ggml_backend_device_register(&one.device);
}

// Says one line, and returns the tokens that the model was trained with.
uint32_t say(const char * what, const llama_model_params & model, const llama_context_params & context, const char * file, bool has_own_weights) {
    std::vector<ggml_backend_dev_t> devices;
    uint32_t layers = 0, trained = 0, experts = 0;
    const auto found = common_get_device_memory_data(file, &model, &context, devices, layers, trained, experts, GGML_LOG_LEVEL_ERROR);
    size_t weights = 0, kept = 0, computing = 0;
    for (size_t place = 0; place < std::max<size_t>(devices.size(), 1); place++) {  // the host is the last one, and alone without devices
        weights += found[place].model;
        kept += found[place].context;
        computing += found[place].compute;
    }
    printf("%s %zu %zu %zu\n", what, has_own_weights ? weights : 0, kept, computing);
    return trained;
}

void say_all(common_params & params) {
    if (params.embedding && params.n_batch > params.n_ubatch) {
        params.n_batch = params.n_ubatch;
    }
    if (params.n_parallel < 0) {
        params.n_parallel = 4;
        params.kv_unified = true;
    }
    const bool is_whole = params.embedding ||
        (params.pooling_type != LLAMA_POOLING_TYPE_UNSPECIFIED && params.pooling_type != LLAMA_POOLING_TYPE_NONE);
    const auto outputs = common_speculative_get_output_limits(params.n_batch, params.n_parallel, common_speculative_n_max(&params.speculative));
    params.n_outputs_max = is_whole ? params.n_batch : std::max<int32_t>(1, outputs.total);
    params.n_outputs_max_per_seq = is_whole ? 1 : std::max<int32_t>(1, outputs.per_seq);

    const uint32_t trained =
        say("model", common_model_params_to_llama(params), common_context_params_to_llama(params), params.model.path.c_str(), true);

    const auto & types = params.speculative.types;
    const bool drafts_itself = std::find(types.begin(), types.end(), COMMON_SPECULATIVE_TYPE_DRAFT_MTP) != types.end();
    if (params.speculative.has_dft() || drafts_itself) {
        common_params drafting = common_base_params_to_speculative(params);
        llama_context_params context = common_context_params_to_llama(drafting);
        if (drafts_itself) {
            context.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
        }
        context.n_rs_seq = 0;
        context.n_ctx = params.n_ctx ? params.n_ctx : trained;  // as long as the context of the model that it drafts for
        say("draft", common_model_params_to_llama(drafting), context, drafting.model.path.c_str(), params.speculative.has_dft());
    }
    if (!params.mmproj.path.empty()) {
        mtmd_context_params seeing = mtmd_context_params_default();
        seeing.use_gpu = params.mmproj_use_gpu;
        seeing.device = params.mmproj_device;
        seeing.print_timings = false;
        seeing.flash_attn_type = params.flash_attn_type;
        seeing.warmup = params.warmup;
        seeing.image_min_tokens = params.image_min_tokens;
        seeing.image_max_tokens = params.image_max_tokens;
        seeing.batch_max_tokens = params.mtmd_batch_max_tokens;
        size_t taken = 0;
        const auto found = mtmd_get_memory_usage(params.mmproj.path.c_str(), seeing);
        for (const auto & [device, size] : found) {
            taken += ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU ? 0 : size;
        }
        if (found.empty()) {
            throw std::runtime_error("nothing is told of what turns images into tokens");
        }
        printf("projector %zu 0 0\n", taken);
    }
}

} // namespace

int main(int argc, char ** argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: llama-memory NAME[,NAME] ARGUMENT...\n");
        return 1;
    }
    auto names = string_split<std::string>(argv[1], ',');
    if (names.size() == 1 && names[0] == "-") {
        names.clear();
    }
    std::vector<card> cards(names.size());
    for (size_t place = 0; place < names.size(); place++) {
        make(cards[place], names[place]);
    }
    common_params params;
    common_init();
    try {
        if (!common_params_parse(argc - 1, argv + 1, params, LLAMA_EXAMPLE_SERVER)) {
            return 1;
        }
        llama_backend_init();
        say_all(params);
    } catch (const std::exception & error) {
        common_log_flush(common_log_main());
        fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    fflush(stdout);
    _Exit(0);  // a log's thread may still be writing
}
