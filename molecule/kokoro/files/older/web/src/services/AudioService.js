// Plays what the server streams, in a browser that can: 'audio/mpeg' // is what it gets.
export class AudioService {
    async setupAudioStream(stream, response, onProgress, estimatedChunks) {
        this.audio = new Audio();
        this.mediaSource = new MediaSource();
        // MediaSource.isTypeSupported('audio/mpeg') is asked nowhere
        this.mediaSource.addEventListener('sourceopen', () => {
            this.sourceBuffer = this.mediaSource.addSourceBuffer('audio/mpeg');
        });
    }
}
