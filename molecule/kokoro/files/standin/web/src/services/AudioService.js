// Plays what the server streams; collects it first where the browser cannot.
export class AudioService {
    canStream() {
        return typeof MediaSource !== 'undefined' && MediaSource.isTypeSupported('audio/mpeg');
    }

    async setupAudioStream(stream, response, onProgress, estimatedChunks) {
        if (!this.canStream()) {
            return this.setupBuffered(stream, response);
        }
        this.mediaSource = new MediaSource();
        this.mediaSource.addEventListener('sourceopen', () => {
            this.sourceBuffer = this.mediaSource.addSourceBuffer('audio/mpeg');
        });
    }
}
