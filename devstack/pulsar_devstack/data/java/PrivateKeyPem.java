import java.io.FileInputStream;
import java.io.InputStream;
import java.security.KeyStore;
import java.util.Base64;

/** Prints the private key `alias` of a PKCS12 keystore as PEM, which keytool does not do. */
public class PrivateKeyPem {
    public static void main(String[] args) throws Exception {
        char[] password = args[2].toCharArray();
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream file = new FileInputStream(args[0])) {
            store.load(file, password);
        }
        byte[] key = store.getKey(args[1], password).getEncoded();
        System.out.println("-----BEGIN PRIVATE KEY-----");
        System.out.println(Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(key));
        System.out.println("-----END PRIVATE KEY-----");
    }
}
